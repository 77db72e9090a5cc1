"""The documentation as a site: built strictly, and complete without other servers."""

import re
import subprocess
import sys

import pytest
import yaml

import codes

from .documents import PAGES, ROOT

pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
pytest.importorskip("latex2mathml", reason="the extra 'docs' is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, built as `make docs` does: a warning ends it."""
    folder = tmp_path_factory.mktemp("site")
    result = build("--site-dir", str(folder))
    assert result.returncode == 0, result.stderr
    return folder


def build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", *arguments]
    assert f"mkdocs {' '.join(command[3:5])}\n" in (ROOT / "Makefile").read_text()
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def pages(site):
    return {str(path.relative_to(site)): path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}


def test_pages_and_nothing_else_are_published(site):
    names = set(pages(site))
    assert {"index.html", "restore.html", "solvers.html", "reference.html", "notebooks/quickstart.html"} <= names
    assert {"options.html", "model-card.html", "changelog.html"} <= names  # made from files of other folders
    assert not [path.name for path in site.rglob("*") if path.suffix in (".py", ".ipynb", ".md")]


def test_pages_load_nothing_from_other_servers(site):
    for name, text in pages(site).items():
        assert not re.findall(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?(?:https?:)?//[^\s>]*", text), name


def test_formulas_are_drawn_without_scripts(site):
    text = (site / "solvers.html").read_text()
    assert text.count("<math ") > 40 and "arithmatex" not in text
    assert "<mfrac>" in text and "<msqrt>" in text and "\\frac" not in re.sub(r"<math.*?</math>", "", text)


def test_reference_documents_every_public_name(site):
    text = (site / "reference.html").read_text()
    for name in codes.__all__:
        assert re.search(rf'id="codes\.[\w.]*\b{name}"', text) or name in ("SOLVERS", "__version__"), name


def test_arguments_are_tables(site):
    """As `sample` documents them: one line each, the name in code."""
    text = (site / "reference.html").read_text()
    assert re.search(r"<td><code>network</code></td>\s*<td>any callable \(x, mu, t\)", text)
    assert "&gt;&gt;&gt; mu" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL)  # examples are code


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    made = {"options.md", "model-card.md", "changelog.md", "notebooks/quickstart.md"}
    tables = {name for name in there if name.startswith("results/embedded/tables/")}  # the report shows them
    assert set(listed) == (there | made) - tables


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_also_lead_somewhere_where_the_files_are_read(path):
    """On a code host there is no site, and its made pages are files of other folders."""
    text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_a_link_to_nowhere_ends_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[nowhere](nowhere.md) [no such heading](#nothing)\n")
    checks = yaml.safe_dump({"validation": yaml.safe_load((ROOT / "mkdocs.yml").read_text())["validation"]})
    (tmp_path / "mkdocs.yml").write_text(f"site_name: a site\n{checks}")
    result = build("--config-file", str(tmp_path / "mkdocs.yml"))
    assert result.returncode == 1
    assert "'nowhere.md'" in result.stderr and "'#nothing'" in result.stderr
    assert "Aborted with 2 warnings in strict mode" in result.stdout + result.stderr
