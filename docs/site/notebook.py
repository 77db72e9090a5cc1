"""Run the notebook and keep its outputs:  python docs/site/notebook.py  (what `make notebook` does).

The cells run in this process, so that neither Jupyter nor a kernel has to be installed: what they print and the figures
that they show become their outputs. The tests run the notebook the same way.
"""

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "quickstart.ipynb"
DPI, COLOURS = 72, 128  # small files


def main() -> int:
    """Write the notebook with new outputs."""
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, run(notebook), strict=True), start=1):
        cell["outputs"], cell["execution_count"] = outputs, number
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    print(f"{NOTEBOOK}: {NOTEBOOK.stat().st_size // 1000} kB")
    return 0


def run(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell, in the format of notebooks."""
    import matplotlib

    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), f"cell {number}", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, names)
            text = printed.getvalue().splitlines(keepends=True)
            stream = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
            outputs.append([*stream, *map(_picture, _figures())])
    return outputs


def _figures() -> list[bytes]:
    """The open figures as PNG files; they are closed."""
    import matplotlib.pyplot as plt
    from PIL import Image

    pictures = []
    for number in plt.get_fignums():
        drawn, file = io.BytesIO(), io.BytesIO()
        plt.figure(number).savefig(drawn, dpi=DPI, bbox_inches="tight")
        Image.open(drawn).convert("RGB").quantize(COLOURS).save(file, "png", optimize=True)
        pictures.append(file.getvalue())
    plt.close("all")
    return pictures


def _picture(png: bytes) -> dict[str, Any]:
    data = {"image/png": base64.b64encode(png).decode(), "text/plain": ["<Figure>"]}
    return {"output_type": "display_data", "data": data, "metadata": {}}


if __name__ == "__main__":
    sys.exit(main())
