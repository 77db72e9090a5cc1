"""What the commands share: types of arguments, the option file and its overrides, and one line for bad options."""

import argparse
import logging
import sys
import textwrap
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from ..names import OptionsError
from ..runtime.output import accept_any_text, open_closed_streams, reader_gone
from ..runtime.problems import explain


def new_parser(prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser whose help fits a screen and keeps the indented lines of description and epilog."""
    return argparse.ArgumentParser(prog=prog, description=description, epilog=epilog, formatter_class=_Compact)


class _Compact(argparse.RawDescriptionHelpFormatter):
    """Options are listed once, not in the usage too, and an option that has two names has its value once."""

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: str | None = None) -> None:
        """The usage with what must be given, and [OPTIONS] for the rest; all of them where that is one line."""
        if usage is None and len(self._whole_usage(actions := list(actions), groups)) > 80:
            needed = [action for action in actions if action.required or not action.option_strings]
            words = " ".join(self._format_usage(None, needed, [], "").split()[len(self._prog.split()) :])
            usage = f"{self._prog} [OPTIONS] {words}".strip().replace("%", "%%")
            actions, groups = [], []
        super().add_usage(usage, actions, groups, prefix)

    def _whole_usage(self, actions: Iterable[argparse.Action], groups: Any) -> str:
        return " ".join(self._format_usage(None, actions, groups, "usage: ").split())

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Prose is filled to the width of the terminal; what is indented stays as it is written."""
        lines: list[str] = []
        for plain, group in groupby(text.splitlines(), lambda line: line[:1] not in ("", " ")):
            block = list(group)
            lines += textwrap.wrap(" ".join(block), width, break_on_hyphens=False) if plain else block
        return "\n".join(lines)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # names and files stay whole


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
    open_closed_streams()
    accept_any_text()
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    try:
        return command(arguments)
    except bad_input as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return reader_gone()
    except OSError as error:
        print(explain(error, harm="cannot be used"), file=sys.stderr)
        return 1


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """--images, --size and --dry-run of the commands that measure solvers."""
    add = parser.add_argument
    add("--images", type=at_least(1), default=2, metavar="N", help="images of each task (default: %(default)s)")
    add("--size", type=at_least(32), default=128, metavar="PIXELS", help="side of the crops (default: %(default)s)")
    add("--dry-run", action="store_true", help="print the cost, and stop")
