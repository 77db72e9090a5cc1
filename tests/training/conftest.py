"""A finished training, its photos, and processes that train."""

import multiprocessing
import shutil

import pytest

from codes.commands.train import main as train

from .helpers import write_options, write_photos


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Photos, and a training that ran without interruption."""
    folder = tmp_path_factory.mktemp("training")
    write_photos(folder / "photos")
    assert train(["-opt", str(write_options(folder, "reference"))]) == 0
    return folder


@pytest.fixture
def copy(world, tmp_path):
    """The same photos, no results."""
    shutil.copytree(world, tmp_path / "copy", ignore=shutil.ignore_patterns("results"))
    return tmp_path / "copy"


@pytest.fixture(scope="session")
def children():
    """Starts trainings in processes of their own, quickly: torch is imported once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["codes.training.stages", "tests.training.helpers"])
    return context
