"""All commands behind one entry point: `mr-sampler COMMAND ...`. The launchers of the project start them from here too.

Importing this needs neither torch nor any other package: a command's module is imported when it is started.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from ..names import unknown
from ..runtime import startup
from ..runtime.paths import PROJECT


@dataclass(frozen=True)
class Command:
    """A command: a line of help, the packages it needs beside requirements.txt, and whether it keeps freed memory."""

    text: str
    needs: tuple[str, ...] = ()
    keeps_memory: bool = False


# By name; the module is the name with underscores.
COMMANDS = {
    "restore": Command("restore photos into a folder"),
    "app": Command("restore images on a web page served by this machine", needs=("gradio",)),
    "test": Command("restore data sets with several solvers, score them, print a table"),
    "train": Command("train a restoration network", keeps_memory=True),
    "reproduce": Command("run the paper's tables and figures and compare with the published numbers"),
    "tune": Command("find the best solver settings for a network and some images"),
    "study": Command("compare solvers, grids and numbers of evaluations on all tasks"),
    "exact-demo": Command("run every solver on a problem with a known solution"),
    "convert": Command("convert published weights to one self-describing .safetensors file"),
    "fetch-weights": Command("download the weights of LPIPS and FID"),
    "make-lq": Command("degrade clean images in the ten published ways"),
    "prepare-photos": Command("download photographs for training and validation"),
}

_HELP = """\
usage: mr-sampler COMMAND [ARGUMENTS ...]

Restore images with mean-reverting diffusion in 5 to 20 network evaluations.

commands:
{commands}

options:
  -h, --help      show this help
  --version       show the version

mr-sampler COMMAND --help shows what a command takes."""


def main(argv: Sequence[str] | None = None) -> int:
    """`mr-sampler COMMAND ...`; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(_HELP.format(commands="\n".join(f"  {name:16}{command.text}" for name, command in COMMANDS.items())))
        return 0 if arguments else 2
    if first == "--version":
        print(f"mr-sampler {_version()}")
        return 0
    if first not in COMMANDS:
        print(f"mr-sampler: {unknown('command', first, COMMANDS)}", file=sys.stderr)
        return 2
    return launch(first, arguments[1:], f"mr-sampler {first}")


def launch(name: str, argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Start a command by its name, with the arguments of this process unless given; returns the exit code.

    What all commands need happens here: packages are checked, and threads are set up before torch is imported.
    """
    command, module = COMMANDS[name], name.replace("-", "_")
    prog = prog or f"{module}.py"
    problem = startup.missing_packages(command.needs)
    if problem is not None:
        print(f"{prog}: {problem}", file=sys.stderr)
        return 2
    startup.set_up_threads()
    if command.keeps_memory:
        startup.keep_memory()
    code: int = import_module(f".{module}", __package__).main(argv, prog)
    return code


def _version() -> str:
    try:
        return version("mr-sampler")
    except PackageNotFoundError:  # run from the project's folder without being installed
        import tomllib

        project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        return str(project["version"])


if __name__ == "__main__":
    sys.exit(main())
