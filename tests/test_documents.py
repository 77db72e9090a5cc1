"""Tests that the documents name exist, and every fact of docs/numerics.md has its test."""

import re
from pathlib import Path

import pytest

from codes.reproduce.findings import EXPECTATIONS

ROOT = Path(__file__).parent.parent
SOURCES = {path.name: path.read_text() for path in (ROOT / "tests").glob("test_*.py")}
TEXTS = {
    "docs/numerics.md": (ROOT / "docs" / "numerics.md").read_text(),
    "docs/CLAIMS.md": (ROOT / "docs" / "CLAIMS.md").read_text(),
    "docs/results/embedded/REPORT.md": (ROOT / "docs" / "results" / "embedded" / "REPORT.md").read_text(),
    "EXPECTATIONS": "\n".join(one.why for one in EXPECTATIONS),
}


@pytest.mark.parametrize("document", TEXTS)
def test_every_test_that_a_document_names_exists(document):
    names = set(re.findall(r"`(test_\w+)`", TEXTS[document]))
    sources = "\n".join(SOURCES.values())
    assert len(names) > 3 and [name for name in sorted(names) if f"def {name}(" not in sources] == []


def test_every_fact_has_a_test_that_refers_back_to_it():
    facts = re.findall(r"^\| (\d+) \| .* \| (`.*`) \|$", TEXTS["docs/numerics.md"], re.MULTILINE)
    assert [int(number) for number, _ in facts] == list(range(1, 28))
    for number, tests in facts:
        for name in re.findall(r"`(test_\w+)`", tests):
            (named,) = re.findall(
                rf'def {name}\(.*\):\n    """Facts? (\d+(?: and \d+)?)\b', "\n".join(SOURCES.values())
            )
            assert number in named.split(" and "), name


@pytest.mark.parametrize("document", ["README.md", "docs/CLAIMS.md"])
def test_pytest_commands_select_something(document):
    names = re.findall(r"def (test_\w+)\(", "\n".join(SOURCES.values()))
    text = (ROOT / document).read_text()
    for expression in re.findall(r'pytest -q -k (?:"([^"]+)"|(?!NAME)(\w+))', text):
        for word in "".join(expression).split(" or "):
            assert any(word in name for name in names), word


def test_option_tables_list_every_option():
    from dataclasses import fields

    from codes import Solver

    text = (ROOT / "options" / "README.md").read_text()
    for field in fields(Solver):
        assert f"`{field.name}`" in text, field.name
