"""What the site needs beyond mkdocs: formulas as MathML, files of other folders, and the notebook as a page."""

import html
import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent.parent
# Files that belong to other folders, by their page of the site.
ELSEWHERE = {"options.md": "options/README.md", "model-card.md": "pretrained/README.md", "changelog.md": "CHANGELOG.md"}
NOTEBOOK = "notebooks/quickstart"
# Formulas as pymdownx.arithmatex leaves them.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from other files."""
    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    cells = json.loads((ROOT / "docs" / f"{NOTEBOOK}.ipynb").read_text())["cells"]
    text = "\n\n".join(part for cell in cells for part in cell_markdown(cell))
    files.append(File.generated(config, f"{NOTEBOOK}.md", content=text))
    return files


def on_page_markdown(text: str, **_: Any) -> str:
    """Links to files of other folders, and to the notebook, lead to their pages here."""
    for page, source in {**ELSEWHERE, f"{NOTEBOOK}.md": f"{NOTEBOOK}.ipynb"}.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(source)}(?=[#)])", f"]({page}", text)
    return text.replace("](../docs/", "](")  # from files of other folders


def on_page_content(html_text: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw without a script."""
    return _FORMULA.sub(lambda match: mathml(match[3], block=match[2] == "["), html_text)


def mathml(formula: str, block: bool) -> str:
    """A formula in TeX as MathML; one on a line of its own scrolls by itself where it is too wide."""
    drawn = convert(html.unescape(formula).strip(), "block" if block else "inline")
    return f'<div class="formula">{drawn}</div>' if block else drawn


def cell_markdown(cell: dict[str, Any]) -> list[str]:
    """A cell of the notebook and its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            parts.append(f'<img alt="What the cell above draws" src="data:image/png;base64,{picture}">')
        else:
            parts.append(f"```text\n{''.join(output.get('text') or data['text/plain'])}\n```")
    return parts
