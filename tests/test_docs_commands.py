"""Every command that the README and the documentation show exists, with its options and files; quick ones are run."""

import argparse
import importlib.util
import re
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from codes.commands.main import COMMANDS
from codes.config import load_options
from codes.data.images import save_image
from codes.integrations.export import example_file
from codes.runtime.startup import missing_packages

from .documents import PAGES, ROOT, Command, blocks, commands, is_command

EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OTHER_PACKAGES = {"pre-commit", "spandrel"}
OTHER_PROGRAMS = {"cp", "docker", "git", "pre-commit"}
RECIPES = {"jump", "squares", "dummy", "largest", "striped", "bars"}  # files that a reader is told to write
SHOWN = [command for page in PAGES for command in commands(page)]
TEST_NAMES = re.findall(r"def (test_\w+)\(", "\n".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py")))


def launched(command: Command) -> tuple[str, list[str]] | None:
    """Name and arguments where a command of this project is started: by a script, or by `mr-sampler`."""
    words = list(command.words)
    if words[0].endswith("torchrun"):
        words = ["python", *(word for word in words[1:] if not word.startswith("--nproc"))]
    if words[0].endswith("mr-sampler") and words[1] in COMMANDS:
        return words[1], words[2:]
    script = words[1] if words[0].endswith("python") else ""
    name = Path(script).stem.replace("_", "-")
    return (name, words[2:]) if script.endswith(".py") and name in COMMANDS else None


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


# ---- run

RUN = {"restore", "make-lq"}
DRY = {"test"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder like the project's, with a photo to restore and clean photos to degrade."""
    monkeypatch.chdir(tmp_path)
    for name in ("options", "pretrained"):
        (tmp_path / name).mkdir()
        for path in (ROOT / name).iterdir():
            (tmp_path / name / path.name).symlink_to(path)
    image = np.random.default_rng(0).integers(0, 256, (40, 48, 3)).astype(np.uint8)
    for name in ("photo.jpg", "photos/old.jpg"):
        save_image(image, tmp_path / name)
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "coffee.png").symlink_to(ROOT / "options" / "demo" / "GT" / "coffee.png")
    return tmp_path


def runnable() -> list[tuple[str, ...]]:
    """Command lines that need nothing but what comes with the project."""
    lines = dict.fromkeys((found[0], *found[1]) for found in map(launched, SHOWN) if found is not None and found[1])
    chosen = []
    for name, *arguments in lines:
        text = " ".join(arguments)
        needs = re.search(r"options/(?!test|demo)\w|mine\.safetensors|=|\bIN\b|FILE|^-", text)
        if name in RUN and not needs:
            chosen.append((name, *arguments))
        if name in DRY and not re.search(r"options/(?!test|demo)\w|FILE", text):
            chosen.append((name, *arguments, *(() if "--dry-run" in arguments else ("--dry-run",))))
    return chosen


@pytest.mark.parametrize("line", runnable(), ids=" ".join)
def test_quick_commands_run_as_shown(folder, line, capsys):
    name, *arguments = line
    if missing_packages(COMMANDS[name].needs) is not None:
        pytest.skip("an extra is not installed")
    main = import_module(f"codes.commands.{name.replace('-', '_')}").main
    assert main(arguments) == 0, capsys.readouterr().err
    options = parsed(name, arguments)
    if name == "restore":
        assert list((options.output or folder / "restored").rglob("*.jpg")), arguments
    if name == "make-lq":
        assert {path.name for path in options.out_dir.iterdir()} == set(options.tasks)


def test_every_command_is_documented():
    shown = {found[0] for found in map(launched, SHOWN) if found is not None}
    assert set(COMMANDS) - shown == set()
