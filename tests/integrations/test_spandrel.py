"""spandrel's loader knows the networks of this project, and still those that it knew before."""

from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import save_file

if find_spec("spandrel") is None:
    pytest.skip("`make test-integrations` installs spandrel", allow_module_level=True)

from codes import load_restorer
from codes.integrations import spandrel as ours
from codes.runtime.paths import PROJECT

WEIGHTS = sorted((PROJECT / "pretrained").glob("mr-*.safetensors"))
IMAGE = torch.rand(1, 3, 33, 47, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def loader():
    ours.register()
    ours.register()  # changes nothing
    return ours.ModelLoader()


@pytest.mark.parametrize("file", WEIGHTS, ids=lambda file: file.stem)
def test_a_checkpoint_is_an_image_model_that_restores(loader, file):
    model = loader.load_from_file(file)
    restorer = load_restorer(file, device="cpu")
    assert isinstance(model, ours.ImageModelDescriptor) and model.architecture.id == "MR Sampler"
    assert (model.purpose, model.scale, model.input_channels, model.output_channels) == ("Restoration", 1, 3, 3)
    assert model.tags[1] == f"{restorer.plan().nfe} evaluations" and model.tiling.name == "INTERNAL"
    restored = model(IMAGE)
    assert torch.equal(restored[0], restorer(IMAGE[0], seed=0)) and torch.equal(restored, model(IMAGE))


def test_half_precision_is_refused_by_the_name_of_spandrels_error(loader):
    with pytest.raises(Exception, match="does not support half precision") as raised:
        loader.load_from_file(WEIGHTS[0]).half()
    assert type(raised.value).__name__ == "UnsupportedDtypeError"


def test_a_plain_nafnet_is_still_spandrels_own(loader, tmp_path):
    from spandrel.architectures.NAFNet import NAFNet

    network = NAFNet(img_channel=3, width=16, middle_blk_num=1, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1])
    save_file(network.state_dict(), tmp_path / "plain.safetensors")
    assert loader.load_from_file(tmp_path / "plain.safetensors").architecture.id == "NAFNet"


def test_ours_are_asked_before_all_others(loader, weights):
    """A ConditionalNAFNet has nearly all keys that spandrel's NAFNet asks for."""
    assert loader.registry.architectures("detection")[0].architecture.id == "MR Sampler"
    assert loader.load_from_file(weights).architecture.id == "MR Sampler"


def test_tensors_without_their_file_are_refused(loader, weights):
    with pytest.raises(ValueError, match="load it with ModelLoader"):
        loader.load_from_state_dict(loader.load_state_dict_from_file(weights))
