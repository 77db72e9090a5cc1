"""DA-CLIP: features, words, preprocessing; and the whole way from published files to a restored image."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image

from codes.names import TASKS
from codes.networks import build_network
from codes.networks.checkpoints import load_network
from codes.networks.daclip import DaCLIP, clip_transform
from codes.networks.predictor import predictor
from codes.runtime.torchvision_compat import ensure_torchvision
from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, sample

from .network_examples import TINY_DACLIP, VIT_B_32, VIT_L_14


@pytest.fixture(scope="module")
def tiny():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DaCLIP(TINY_DACLIP).eval()
        with torch.no_grad():
            for parameter in network.visual_control.transformer.zero_modules.parameters():
                parameter.normal_(std=0.1)
    return network


def test_a_fresh_controller_changes_nothing():
    network = DaCLIP(TINY_DACLIP).eval()
    image = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        features, degradation = network.controlled(image)
        assert torch.equal(features, network.clip.encode_image(image))
        assert torch.allclose(degradation, features, atol=1e-6)  # a copy of the same tower


def test_hidden_states_enter_in_reversed_order(tiny):
    image = torch.rand(1, 3, 32, 32)
    one = copy.deepcopy(tiny)
    with torch.no_grad():
        # Only the controller's last layer hands something over: it enters after the image tower's first block.
        for zero in one.visual_control.transformer.zero_modules[:-1]:
            for parameter in zero.parameters():
                parameter.zero_()
        hiddens, _ = one.control_hiddens(image)
        tower = one.clip.visual
        x = torch.cat([tower.class_embedding.view(1, 1, -1), tower.conv1(image).flatten(2).mT], dim=1)
        x = tower.ln_pre(x + tower.positional_embedding)
        first, *rest = tower.transformer.resblocks
        x = first(x) + hiddens[-1]
        for block in rest:
            x = block(x)
        expected = tower.ln_post(x[:, 0]) @ tower.proj
        assert torch.allclose(one.controlled(image).image, expected, atol=1e-5)


def test_features_have_length_1_on_request(tiny):
    with torch.no_grad():
        normal = tiny.controlled(torch.rand(2, 3, 32, 32), normalize=True)
    assert torch.allclose(normal.image.norm(dim=-1), torch.ones(2))
    assert torch.allclose(normal.degradation.norm(dim=-1), torch.ones(2))


def test_describe_is_the_softmax_over_the_ten_words(tiny):
    images = torch.rand(2, 3, 40, 50)
    result = tiny.describe(images)
    assert [list(row) for row in result] == [list(TASKS)] * 2
    with torch.no_grad():
        degradation = tiny.controlled(clip_transform(images, 32)).degradation
        text = tiny.encode_text(tiny.tokenize(["rainy", "hazy"]))
    logits = 100 * torch.cosine_similarity(degradation[:, None], text[None], dim=-1)
    for row, (rainy, hazy) in zip(result, logits.tolist()):
        assert sum(row.values()) == pytest.approx(1, abs=1e-5)
        assert np.log(row["rainy"] / row["hazy"]) == pytest.approx(rainy - hazy, abs=1e-3)
    assert tiny.describe(images[1])[0] == pytest.approx(result[1], abs=1e-5)


def test_tokens_are_clips(tiny):
    tokens = tiny.tokenize(["noisy"])
    assert tokens[0, 0] == 49406 and tokens[0].max() == 49407 and tokens[0, -1] == 0
    small = DaCLIP({**TINY_DACLIP, "text_cfg": {**TINY_DACLIP["text_cfg"], "vocab_size": 100}})
    with pytest.raises(ValueError, match="words need 49408 tokens, this vocabulary has 100"):
        small.describe(torch.rand(3, 32, 32))


@pytest.mark.parametrize("size", [(45, 61), (300, 200), (32, 32), (33, 100), (1, 7)])
def test_preprocessing_is_open_clips(size):
    ensure_torchvision()
    from open_clip.transform import image_transform

    image = torch.rand(3, *size)
    pixels = (image * 255).to(torch.uint8).permute(1, 2, 0).numpy()
    expected = image_transform(32, is_train=False)(Image.fromarray(pixels))
    assert torch.allclose(clip_transform(image[None], 32)[0], expected, atol=1e-6)


def test_values_outside_the_range_do_not_wrap_around():
    assert torch.equal(clip_transform(torch.full((1, 3, 8, 8), 1.2), 8), clip_transform(torch.ones(1, 3, 8, 8), 8))


def test_unknown_entries_of_a_config_are_named():
    with pytest.raises(ValueError, match=r"missing entries \['embed_dim'\], unknown entries \['width'\]"):
        DaCLIP({"width": 8, "vision_cfg": {}, "text_cfg": {}})


def test_vit_l_14_has_the_width_that_wild_ir_expects():
    with torch.device("meta"):
        network = DaCLIP(VIT_L_14)
    assert network.clip.visual.proj.shape == (1024, 768)
    assert len(network.visual_control.transformer.zero_modules) == 24


@pytest.mark.slow
def test_from_published_files_to_a_restored_image(tmp_path):
    """Full size, random weights: saved as published, loaded, contexts computed, one image restored."""
    setting = {
        "in_nc": 3,
        "out_nc": 3,
        "nf": 64,
        "ch_mult": [1, 2, 4, 8],
        "context_dim": 512,
        "use_degra_context": True,
        "use_image_context": True,
    }
    torch.manual_seed(0)
    unet = build_network("ConditionalUNet", setting)
    torch.save(unet.state_dict(), tmp_path / "universal-ir.pth")
    encoder = DaCLIP(VIT_B_32)
    state = {f"module.{key}": value for key, value in encoder.state_dict().items()}
    torch.save({"epoch": 1, "name": "daclip", "state_dict": state}, tmp_path / "daclip_ViT-B-32.pt")
    del encoder, state

    network, _ = load_network(tmp_path / "universal-ir.pth", "ConditionalUNet", setting)
    assert sum(p.numel() for p in network.parameters()) == 48_975_747
    encoder, _ = load_network(tmp_path / "daclip_ViT-B-32.pt")
    assert isinstance(encoder, DaCLIP)

    lq = torch.rand(1, 3, 40, 56)
    with torch.no_grad():
        features = encoder.controlled(encoder.preprocess(lq))
    assert sum(encoder.describe(lq)[0].values()) == pytest.approx(1, abs=1e-5)
    contexts = {"text_context": features.degradation, "image_context": features.image}
    calls = []
    predict = predictor(network, **contexts)

    def counted(x, mu, t):
        calls.append(t)
        return predict(x, mu, t)

    sde = MeanRevertingSDE()
    solver = Solver("mrsampler-pc", num_sample_steps=5, fit_target="noise")
    output = sample(counted, sde, lq, solver, generator=torch.Generator().manual_seed(0))
    assert len(calls) == output.nfe == 5
    assert torch.isfinite(output.sample).all() and output.sample.shape == lq.shape
    # Nothing is lost between the published file and the sampler: the network itself gives the same prediction.
    x = lq + 0.1
    with torch.no_grad():
        assert torch.equal(predict(x, lq, calls[0]), unet(x, lq, calls[0], **contexts))
