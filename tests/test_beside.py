"""Relative paths of an option file: beside it, in the current folder, in the package; the error lists all three."""

from pathlib import Path

import pytest

from codes.config import load_options, load_stages
from codes.runtime.paths import PROJECT, locate

TEXT = "path: {pretrain_model_G: w.pth}\ndatasets: {val: {mode: LQ, dataroot_LQ: photos}}\n"


@pytest.fixture
def world(tmp_path, monkeypatch):
    """An option file in one folder, the current folder is another."""
    for name in ("options", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "options" / "run.yml").write_text(TEXT)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def weights_of(world, overrides=()):
    return load_options(world / "options" / "run.yml", overrides).path.pretrain_model_G


def test_what_is_beside_the_file_comes_first(world):
    for folder in ("options", "here"):
        (world / folder / "w.pth").touch()
    assert weights_of(world) == str(world / "options" / "w.pth")
    (world / "options" / "w.pth").unlink()
    assert weights_of(world) == "w.pth" and locate("w.pth") == Path("w.pth")


def test_what_is_set_on_the_command_line_is_relative_to_the_current_folder(world):
    for folder in ("options", "here"):
        (world / folder / "other.pth").touch()
    assert weights_of(world, ["path.pretrain_model_G=other.pth"]) == "other.pth"


def test_a_path_of_a_base_is_beside_the_base(world):
    (world / "base").mkdir()
    (world / "base" / "base.yml").write_text(TEXT)
    (world / "base" / "w.pth").touch()
    (world / "options" / "run.yml").write_text("based_on: ../base/base.yml\n")
    assert Path(weights_of(world)).samefile(world / "base" / "w.pth")


def test_folders_and_trainings_too(world):
    (world / "options" / "photos").mkdir()
    options = load_options(world / "options" / "run.yml")
    assert options.datasets["val"].dataroot_LQ == str(world / "options" / "photos")
    network = "network_G: {which_model_G: ConditionalNAFNet, setting: {width: 8}}\n"
    dataset = "datasets: {train: {mode: GT, dataroot_GT: photos, degradation: all}}\n"
    (world / "options" / "train.yml").write_text(network + dataset)
    (stage,) = load_stages(world / "options" / "train.yml")
    assert stage.datasets["train"].dataroot_GT == str(world / "options" / "photos")


def test_the_package_comes_last(world):
    assert locate("options/test.yml") == PROJECT / "options" / "test.yml"
    (world / "here" / "options").mkdir()
    (world / "here" / "options" / "test.yml").touch()
    assert locate("options/test.yml") == Path("options/test.yml")
