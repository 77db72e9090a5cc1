"""The Python that the documentation shows runs as shown: README, pages, notebook and recipes."""

import importlib.util
import json
import re
import shutil

import pytest
import torch

from codes import load_restorer

from .documents import ROOT, blocks
from .evaluation import write_images, write_options, write_weights

NOTEBOOK = ROOT / "docs" / "notebooks" / "quickstart.ipynb"


def in_clone(code: str) -> str:
    """Code for the installed package as code for the clone, where the same package is called `codes`."""
    return code.replace("mr_sampler", "codes")


def python(page: str) -> list[str]:
    return [in_clone(block.text) for block in blocks(ROOT / page) if block.language == "python"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an option file for a small random network, and the image rainy.png."""
    monkeypatch.chdir(tmp_path)
    write_weights(tmp_path / "tiny.safetensors")
    write_images(tmp_path, ("rainy",), images=1)
    (tmp_path / "rainy" / "LQ" / "000.png").rename("rainy.png")
    (tmp_path / "options").mkdir()
    write_options(tmp_path, "test").rename(tmp_path / "options" / "test.yml")
    return tmp_path


def run(page: str, **names):
    """Run the blocks of a page one after the other."""
    shown = python(page)
    assert shown
    for block in shown:
        exec(block, names)
    return names


def test_blocks_of_the_readme(folder):
    names = run("README.md", network=lambda x, mu, t: torch.tanh(x - mu), mu=torch.rand(2, 3, 8, 8))
    assert (folder / "clean.png").is_file()
    assert names["out"].nfe == 8 and names["out"].sample.shape == (2, 3, 8, 8)


def test_blocks_of_the_first_page(folder):
    run("docs/index.md")
    assert (folder / "clean.png").is_file()


def test_blocks_of_the_solver_guide():
    run("docs/solvers.md")  # asserts that its formulas give the coefficients of a plan


def test_blocks_of_the_page_on_figures(folder):
    restorer = load_restorer("tiny.safetensors", device="cpu")
    lq = torch.rand(1, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    run("docs/figures.md", restorer=restorer, lq=lq, gt=lq[0])
    assert (folder / "results" / "trajectories.png").is_file() and (folder / "results" / "trajectories.svg").is_file()


@pytest.mark.parametrize("library", ["spandrel", "comfyui", "diffusers"])
def test_blocks_of_the_page_on_other_programs(folder, library):
    block = dict(zip(["spandrel", "comfyui", "diffusers"], python("docs/integrations.md"), strict=True))[library]
    assert library in block
    if library != "comfyui" and importlib.util.find_spec(library) is None:  # the nodes of ComfyUI need nothing of it
        pytest.skip(f"{library} is not installed")
    names = {"image": torch.rand(1, 3, 24, 32)}
    shutil.copy("tiny.safetensors", "model.safetensors")
    if library == "diffusers":
        from codes.scheduler import MeanRevertingPipeline

        MeanRevertingPipeline.from_checkpoint("model.safetensors").save_pretrained("my-model")
        # The stored pipeline imports the installed package.
        pytest.importorskip("mr_sampler.scheduler", reason="the package is not installed")
    exec(block, names)
    if library == "spandrel":
        assert torch.equal(names["restored"][0], load_restorer("model.safetensors", "cpu")(names["image"][0]))
    if library == "comfyui":
        assert list(names["NODE_CLASS_MAPPINGS"]) == list(names["NODE_DISPLAY_NAME_MAPPINGS"])
        assert len(names["NODE_CLASS_MAPPINGS"]) == 3
    if library == "diffusers":
        assert type(names["pipeline"]).__name__ == "MeanRevertingPipeline"


def test_every_page_with_python_is_run_here_or_elsewhere():
    here = {"docs/index.md", "docs/solvers.md", "docs/figures.md", "docs/integrations.md", "docs/CONTRIBUTING.md"}
    elsewhere = {"docs/api.md", "docs/app.md"}  # tests/test_api.py, tests/test_app_server.py
    pages = {
        str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md") if python(str(path.relative_to(ROOT)))
    }
    assert pages == here | elsewhere


def squeezed(text: str) -> str:
    """Without what differs between a block and the same lines in a string: white space and quotes of strings."""
    return re.sub(r"[\s']+", "", text)


@pytest.mark.parametrize("block", python("docs/CONTRIBUTING.md"))
def test_recipes_are_what_the_conformance_tests_add(block):
    tests = (ROOT / "tests").glob("test_conformance_*.py")
    assert any(squeezed(block) in squeezed(path.read_text()) for path in tests)


# ---- the notebook


def runner():
    """docs/site/notebook.py, which is no package."""
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "site" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebook_runs_from_any_folder_and_prints_what_is_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(NOTEBOOK.read_text())
    stored = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in notebook["cells"]:
        cell["source"] = in_clone("".join(cell["source"]))
    printed = runner().run(notebook)
    kinds = [[output["output_type"] for output in outputs] for outputs in printed]
    assert kinds == [[output["output_type"] for output in outputs] for outputs in stored]
    texts = [[output.get("text") for output in outputs] for outputs in printed]
    assert texts == [[output.get("text") for output in outputs] for outputs in stored]
    assert sum(kind == "display_data" for each in kinds for kind in each) == 6


def test_notebook_is_small_and_complete():
    assert NOTEBOOK.stat().st_size < 500_000
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell["id"] for cell in cells] == [f"cell-{i:02}" for i in range(len(cells))]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
