"""What the commands share: types of arguments, the option file and its overrides, and one line for bad options."""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..names import OptionsError
from ..runtime.output import accept_any_text
from ..runtime.problems import explain


def new_parser(prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser that prints description and epilog line by line as they are written."""
    return argparse.ArgumentParser(
        prog=prog, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def filled(text: str) -> str:
    """The type of an argument: any text but none, which an unset variable of the shell gives."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def named(text: str) -> Path:
    """The type of an argument: a path. The empty one would mean the current folder."""
    return Path(filled(text))


def add_option_file(parser: argparse.ArgumentParser, text: str, default: str | None = None) -> None:
    """-opt FILE with the help `text`; required where there is no default."""
    shown = text if default is None else f"{text} (default: {default})"
    path = None if default is None else Path(default)
    parser.add_argument(
        "-opt", "--opt", type=named, default=path, required=default is None, metavar="FILE", help=shown
    )  # fmt: skip


def add_overrides(parser: argparse.ArgumentParser, example: str) -> None:
    """--set KEY=VALUE ..., which may be given several times."""
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="overrides",
        help=f"override options, e.g. --set {example}",
    )  # fmt: skip


def add_run_options(parser: argparse.ArgumentParser, example: str, dry_run: str) -> None:
    """What test.py and train.py take: -opt, --set, --dry-run and --fresh."""
    add_option_file(parser, "option file (YAML)")
    add_overrides(parser, example)
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("--fresh", action="store_true", help="start in a new, numbered folder instead of resuming")


def at_least(low: int, high: int = 1_000_000_000) -> Callable[[str], int]:
    """The type of an argument: an integer from `low` on, and no larger than is of any use.

    >>> at_least(1)("8")
    8
    """

    def number(text: str) -> int:
        digits = text.isascii() and text.isdigit()
        if not digits or (len(text) < 30 and int(text) < low):
            raise argparse.ArgumentTypeError(f"expected an integer of at least {low}, got {text[:40]!r}")
        if len(text) >= 30 or int(text) > high:
            raise argparse.ArgumentTypeError(f"expected an integer of at most {high:,}, got {text[:40]!r}")
        return int(text)

    return number


def share(text: str) -> float:
    """The type of an argument: a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return value


def tile(text: str) -> int | str:
    """The type of an argument: the side of tiles, 'auto' or 'off'."""
    return text if text in ("auto", "off") else at_least(64, 100_000)(text)


def workers(text: str) -> int | None:
    """The type of an argument: a number of processes, None for 'auto'."""
    return None if text == "auto" else at_least(1, 1024)(text)


def run(
    command: Callable[[argparse.Namespace], int],
    arguments: argparse.Namespace,
    *,
    level: int = logging.INFO,
    bad_input: tuple[type[Exception], ...] = (OptionsError,),
) -> int:
    """The exit code of a command: 2, and a message without traceback, if its options or data cannot be used.

    A file that the system does not let it read or write is one line and exit code 1.
    """
    accept_any_text()
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    try:
        return command(arguments)
    except bad_input as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes
        return 1
    except OSError as error:
        print(explain(error, harm="cannot be used"), file=sys.stderr)
        return 1


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """--images, --size and --dry-run of the commands that measure solvers."""
    add = parser.add_argument
    add("--images", type=at_least(1), default=2, metavar="N", help="images of each task (default: %(default)s)")
    add("--size", type=at_least(32), default=128, metavar="PIXELS", help="side of the crops (default: %(default)s)")
    add("--dry-run", action="store_true", help="print the cost, and stop")
