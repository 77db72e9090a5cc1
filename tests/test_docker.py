"""The Dockerfile cannot be built in the tests; what it copies and starts exists."""

import json
import re
import shlex
from pathlib import Path

from codes.commands.app import build_parser
from codes.commands.main import COMMANDS

ROOT = Path(__file__).parent.parent
LINES = re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text()).splitlines()


def test_everything_that_is_copied_exists_and_is_all_that_the_package_needs():
    copied = {name for line in LINES if line.startswith("COPY ") for name in shlex.split(line)[1:-1]}
    assert copied == {"requirements.txt", "pyproject.toml", "README.md", "LICENSE", "codes", "options", "pretrained"}
    assert all((ROOT / name).exists() for name in copied)


def test_it_starts_the_web_page_for_other_machines():
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in LINES if line.startswith("CMD ")]
    assert command[:2] == ["mr-sampler", "app"] and command[1] in COMMANDS
    (port,) = [int(line.split()[1]) for line in LINES if line.startswith("EXPOSE ")]
    arguments = build_parser("app").parse_args(command[2:])
    assert (arguments.host, arguments.port) == ("0.0.0.0", port)
