"""How the scripts of this folder start.

A script sees its own folder, not the project's, so it finds `codes` only where that is installed.
"""

import sys
from collections.abc import Callable
from pathlib import Path


def launch(name: str) -> int:
    """Run a command of codes/commands with the arguments of this process; returns the exit code."""
    if not _installed():
        return 2
    from codes.commands.main import launch

    return launch(name)


def start(main: Callable[[], int], *needs: str) -> int:
    """Run the `main` of a script that is not a command; returns the exit code. `needs`: packages beyond the usual."""
    if not _installed():
        return 2
    from codes.runtime import startup

    problem = startup.missing_packages(needs)
    if problem is not None:
        return _fail(problem)
    startup.set_up_threads()
    return main()


def _installed() -> bool:
    try:
        import codes  # noqa: F401
    except ModuleNotFoundError:
        how = "run `make install` and use .venv/bin/python, or run `pip install -r requirements.txt -e .`"
        _fail(f"MR Sampler is not installed in {sys.executable}: {how}")
        return False
    return True


def _fail(problem: str) -> int:
    print(f"{Path(sys.argv[0]).name}: {problem}", file=sys.stderr)
    return 2
