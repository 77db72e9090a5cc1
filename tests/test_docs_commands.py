"""Every command that the README and the documentation show exists, with its options and files."""

import argparse
import importlib.util
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from codes.commands.main import COMMANDS
from codes.config import load_options
from codes.integrations.export import example_file

from .documented import launched
from .documents import PAGES, ROOT, blocks, commands, is_command

EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OTHER_PACKAGES = {"pre-commit", "spandrel"}
OTHER_PROGRAMS = {"cp", "docker", "git", "pre-commit"}
RECIPES = {"jump", "squares", "dummy", "largest", "striped", "bars"}  # files that a reader is told to write
SHOWN = [command for page in PAGES for command in commands(page)]
TEST_NAMES = re.findall(r"def (test_\w+)\(", "\n".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py")))


def parsed(name: str, arguments: list[str]) -> argparse.Namespace:
    """The arguments as the command's own parser reads them."""
    parser: argparse.ArgumentParser = import_module(f"codes.commands.{name.replace('-', '_')}").build_parser(name)
    return parser.parse_args(arguments)


def check_options(name: str, options: argparse.Namespace) -> None:
    """An option file of the project exists, and its overrides are known."""
    file = getattr(options, "opt", None)
    if file is not None and file.suffix == ".yml" and file.parts[0] == "options":
        assert (ROOT / file).is_file(), file
        load_options(ROOT / file, getattr(options, "overrides", []), "train" if name == "train" else "test")


def check_pip(arguments: list[str]) -> None:
    """The requirements file exists; extras are those of the project; other packages are meant."""
    assert arguments[0] == "install"
    for word in arguments[1:]:
        extras = re.fullmatch(r"(?:\.|mr-sampler)\[(.*)\]", word)
        if extras is not None:
            assert set(extras[1].split(",")) <= EXTRAS, word
        else:
            assert word in {"-r", "-e", ".", "mr-sampler", *OTHER_PACKAGES} or (ROOT / word).is_file(), word


@pytest.mark.parametrize("command", SHOWN, ids=str)
def test_commands_options_and_files_exist(command):
    first, *rest = command.words
    found = launched(command)
    if found is not None and not found[1]:
        pass  # a command by its name, which exists
    elif found is not None:
        check_options(found[0], parsed(*found))
    elif first == "mr-sampler":
        assert rest[0] in ("--help", "--version", "COMMAND"), command
    elif first == "make":
        assert set(rest) <= TARGETS
    elif first.endswith("pip"):
        check_pip(rest)
    elif first.endswith("python") and rest[:2] == ["-m", "pytest"]:
        check_pytest(rest[2:])
    elif first.endswith("python") and rest[0] == "-m":
        assert rest[1] in ("venv",) or importlib.util.find_spec(rest[1]) is not None
    elif first.endswith("python") and rest[0].startswith("run_"):
        assert rest[0] == example_file(Path(rest[1])).name  # what `mr-sampler export` writes
    elif first.endswith("python"):  # a script that is no command
        source = (ROOT / rest[0]).read_text()
        for option in (word for word in rest if word.startswith("--")):
            assert f'"{option}"' in source, option
    else:
        assert first in OTHER_PROGRAMS, command


def check_pytest(arguments: list[str]) -> None:
    """Files exist, and every word of an expression selects something."""
    for word in arguments:
        if word.startswith("tests/"):
            assert (ROOT / word).is_file()
        elif not word.startswith("-") and word != "NAME":
            for part in word.split(" or "):
                assert any(part in name for name in TEST_NAMES), part


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_in_bash_blocks_where_they_are_checked(page):
    for block in blocks(page):
        if block.language not in ("bash", "python", "yaml"):
            assert not [line for line in block.text.splitlines() if is_command(line)], block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_pages_name_exist(page):
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for name in re.findall(r"`((?:scripts|codes|tests|docs|\.github)/[\w./-]*\w)`", text):
        assert (ROOT / name).exists() or Path(name).stem in RECIPES, name


def test_the_readme_names_existing_files_only():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    for name in re.findall(r"(?:scripts|codes|options|docs|pretrained)/[\w./-]*\w", text):
        assert (ROOT / name).exists(), name


def test_every_command_is_documented():
    shown = {found[0] for found in map(launched, SHOWN) if found is not None}
    assert set(COMMANDS) - shown == set()
