"""How the scripts of this folder start.

A script sees its own folder, not the project's: `codes` is loaded from beside it, whether it is installed or not.
"""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def _load_package() -> None:
    spec = spec_from_file_location("codes", Path(__file__).resolve().parent.parent / "codes" / "__init__.py")
    assert spec is not None and spec.loader is not None
    sys.modules["codes"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["codes"])


if "codes" not in sys.modules:
    _load_package()


def launch(name: str) -> int:
    """Run a command of codes/commands with the arguments of this process; returns the exit code."""
    from codes.commands.main import launch

    return launch(name)


def start(main: Callable[[], int], *needs: str) -> int:
    """Run the `main` of a script that is not a command; returns the exit code. `needs`: packages beyond the usual."""
    from codes.runtime import startup

    problem = startup.missing_packages(needs)
    if problem is not None:
        print(f"{Path(sys.argv[0]).name}: {problem}", file=sys.stderr)
        return 2
    startup.set_up_torch()
    return main()
