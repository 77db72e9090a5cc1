"""All commands behind one entry point: `mr-sampler COMMAND ...`. The launchers of the project start them from here too.

Importing this needs neither torch nor any other package: a command's module is imported when it is started.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from .. import __version__
from ..names import unknown
from ..runtime import startup
from ..runtime.output import accept_any_text, reader_gone


@dataclass(frozen=True)
class Command:
    """A command: a line of help, the extra of pyproject.toml that it needs, and whether it keeps freed memory.

    In a clone the packages of requirements.txt are expected, and those that the command `needs` besides.
    """

    text: str
    extra: str = "restore"
    needs: tuple[str, ...] = ()
    keeps_memory: bool = False


# By name; the module is the name with underscores.
COMMANDS = {
    "restore": Command("restore photos into a folder"),
    "app": Command("restore images on a web page served by this machine", "app", needs=("gradio",)),
    "describe": Command("show what a checkpoint holds, or what is wrong with a photo"),
    "test": Command("restore data sets with several solvers, score them, print a table", "metrics"),
    "train": Command("train a restoration network", "metrics", keeps_memory=True),
    "reproduce": Command("run the paper's tables and figures and compare with the published numbers", "figures"),
    "tune": Command("find the best solver settings for a network and some images", "figures"),
    "study": Command("compare solvers, grids and numbers of evaluations on all tasks", "figures"),
    "exact-demo": Command("run every solver on a problem with a known solution", "figures"),
    "convert": Command("convert published weights to one self-describing .safetensors file"),
    "export": Command("write network and solver as one ONNX or OpenVINO graph", "export", needs=("onnx",)),
    "calibrate": Command("choose when photos that look clean are left alone, for a checkpoint"),
    "fetch-weights": Command("download the weights of the metrics", "metrics"),
    "make-lq": Command("degrade clean images in the ten published ways"),
    "prepare-photos": Command("download photographs for training and validation"),
    "completion": Command("print a script for completion in bash or zsh"),
}

_HELP = """\
usage: mr-sampler COMMAND [ARGUMENTS ...]

Restore images with mean-reverting diffusion in 5 to 20 network evaluations.

commands:
{commands}

mr-sampler COMMAND --help shows what a command takes, mr-sampler --version the version."""


def main(argv: Sequence[str] | None = None) -> int:
    """`mr-sampler COMMAND ...`; returns the exit code."""
    accept_any_text()
    try:
        code = _start(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_gone()


def _start(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(_HELP.format(commands="\n".join(f"  {name:16}{command.text}" for name, command in COMMANDS.items())))
        return 0 if arguments else 2
    if first == "--version":
        print(f"mr-sampler {__version__}")
        return 0
    if first not in COMMANDS:
        print(f"mr-sampler: {unknown('command', first, COMMANDS)}", file=sys.stderr)
        return 2
    return launch(first, arguments[1:], f"mr-sampler {first}")


def launch(name: str, argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Start a command by its name, with the arguments of this process unless given; returns the exit code.

    What all commands need happens here: packages are checked, and threads are set up before torch is imported.
    """
    accept_any_text()
    command, module = COMMANDS[name], name.replace("-", "_")
    prog = prog or f"{module}.py"
    asks_for_help = not {"-h", "--help"}.isdisjoint(sys.argv[1:] if argv is None else argv)
    # The help of a command is for those who have not installed what only it needs.
    needs, extra = ((), "restore") if asks_for_help else (command.needs, command.extra)
    problem = startup.missing_packages(needs, extra)
    if problem is not None:
        print(f"{prog}: {problem}", file=sys.stderr)
        return 2
    startup.set_up_torch()
    if command.keeps_memory:
        startup.keep_memory()
    code: int = import_module(f".{module}", __package__).main(argv, prog)
    return code


if __name__ == "__main__":
    sys.exit(main())
