"""What the README shows works as shown."""

import re
from pathlib import Path

import torch

from .evaluation import write_images, write_options, write_weights

ROOT = Path(__file__).parent.parent


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_weights(tmp_path / "tiny.safetensors")
    write_images(tmp_path, ("rainy",), images=1)
    (tmp_path / "rainy" / "LQ" / "000.png").rename("rainy.png")
    (tmp_path / "options").mkdir()
    write_options(tmp_path, "test").rename(tmp_path / "options" / "test.yml")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    names = {"network": lambda x, mu, t: torch.tanh(x - mu), "mu": torch.rand(2, 3, 8, 8)}
    for block in blocks:
        exec(block, names)
    assert (tmp_path / "clean.png").is_file()
    assert names["out"].nfe == 8 and names["out"].sample.shape == (2, 3, 8, 8)


def test_every_command_line_names_an_existing_file():
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"(?:scripts|codes|options|docs|pretrained)/[\w./-]*\w", text):
        assert (ROOT / name).exists(), name


def test_option_tables_list_every_option():
    from dataclasses import fields

    from codes import Solver

    text = (ROOT / "options" / "README.md").read_text()
    for field in fields(Solver):
        assert f"`{field.name}`" in text, field.name
