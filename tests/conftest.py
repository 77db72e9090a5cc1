"""Fixtures that several test files share."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

from codes.config import load_options
from codes.metrics import LPIPS, InceptionFeatures, MissingWeights
from codes.networks.auto_precision import SWITCH
from codes.runtime import processor
from codes.study import bench

from .evaluation import write_weights

# Golden values hold for float32, and must not depend on the processor; commands that tests start inherit this.
os.environ[SWITCH] = "fp32"

# The same examples in every run; `make fuzz` draws new ones, as many for each property as MR_FUZZ says.
_FUZZ = int(os.environ.get("MR_FUZZ") or 0)
settings.register_profile(
    "here",
    max_examples=_FUZZ or 25,
    derandomize=not _FUZZ,
    database=None,
    deadline=None,
    print_blob=bool(_FUZZ),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("here")


@pytest.fixture(scope="session", autouse=True)
def _own_answers(tmp_path_factory):
    """What tests find out about the machine stays with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "FILE", tmp_path_factory.mktemp("answers") / "answers.json")
        yield


@pytest.fixture(scope="session", autouse=True)
def _short_measurements():
    """Costs are measured by one call; how long things take is for no test to say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "ENOUGH", 0.0)
        yield


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """A checkpoint of a small random network."""
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    write_weights(path)
    return path


@pytest.fixture
def load(tmp_path):
    """Loads the text of an option file, run.yml."""

    def load(text, overrides=(), kind="test"):
        file = tmp_path / "run.yml"
        file.write_text(text)
        return load_options(file, overrides, kind)

    return load


@pytest.fixture
def copy(world, tmp_path):
    """What the test file's `world` was made from, without its results."""
    shutil.copytree(world, tmp_path / "copy", ignore=shutil.ignore_patterns("results"))
    return tmp_path / "copy"


@pytest.fixture
def place(world, tmp_path):
    """A copy of the test file's `world` to spoil."""
    shutil.copytree(world, tmp_path / "copy")
    return tmp_path / "copy"


def load_or_skip(network):
    try:
        return network()
    except MissingWeights as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def lpips():
    return load_or_skip(LPIPS)


@pytest.fixture(scope="session")
def inception():
    return load_or_skip(InceptionFeatures)
