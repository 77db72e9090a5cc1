"""Files that other programs read: what they name exists, and they agree. Neither Docker nor the workflow runs here."""

import json
import re
import shlex
import tomllib

import pytest
import yaml

import codes
from codes.commands.app import build_parser
from codes.commands.main import COMMANDS

from .documents import ROOT

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PYTHONS = ["3.11", "3.12", "3.13"]


def read_yaml(path: str):
    return yaml.safe_load((ROOT / path).read_text())


# ---- continuous integration


def workflow():
    return read_yaml(".github/workflows/ci.yml")


def test_the_workflow_runs_on_changes_and_may_only_read():
    file = workflow()
    assert set(file[True]) == {"push", "pull_request"}  # YAML reads `on` as true
    assert file["permissions"] == {"contents": "read"}


def test_the_workflow_tests_every_python_that_the_package_names():
    job = workflow()["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line.rsplit(" ", 1)[1] for line in project["classifiers"] if ":: Python ::" in line]
    assert named == PYTHONS and project["requires-python"] == f">={PYTHONS[0]}"


def test_targets_and_files_of_the_workflow_exist():
    steps = workflow()["jobs"]["test"]["steps"]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    assert lines == [".ci/run", "make docs"]
    for line in lines:
        first, *rest = shlex.split(line)
        assert set(rest) <= TARGETS if first == "make" else (ROOT / first).stat().st_mode & 0o100
    (python,) = [step["with"] for step in steps if step.get("uses", "").startswith("actions/setup-python@")]
    assert all((ROOT / name).is_file() for name in python["cache-dependency-path"].split())
    (site,) = [step["with"] for step in steps if step.get("uses", "").startswith("actions/upload-artifact@")]
    assert site["path"] == read_yaml("mkdocs.yml").get("site_dir", "site")
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps if "uses" in step)


def test_the_script_of_the_workflow_runs_both_sets_of_tests():
    text = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^make (.*)", text, re.MULTILINE) == ["test", "test-integrations"]
    assert {"test", "test-integrations"} <= TARGETS


def test_pre_commit_runs_the_tools_of_make():
    (repo,) = read_yaml(".pre-commit-config.yaml")["repos"]
    makefile = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin")
    for hook in repo["hooks"]:
        assert hook["entry"].removesuffix(" --force-exclude") in makefile, hook


@pytest.mark.parametrize("name", ["bug", "idea", "numbers"])
def test_issue_templates_have_what_the_form_needs(name):
    form = read_yaml(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form["name"] and form["description"] and form["body"]
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in form["body"])


# ---- the version


def test_versions_agree():
    """Package, changelog and citation; the tag of a release is this version with a v before it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "codes.__version__"}
    citation = read_yaml("CITATION.cff")
    ((newest, date), *_) = re.findall(r"^## (\d\S*) \(([\d-]+)\)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (citation["version"], str(citation["date-released"])) == (newest, date)
    assert codes.__version__ == newest
    assert citation["preferred-citation"]["title"].startswith("MaRS: A Fast Sampler")


# ---- Docker

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
