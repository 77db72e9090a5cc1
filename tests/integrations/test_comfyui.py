"""The nodes keep ComfyUI's contract: what its loader and executor read from a node class, and BHWC images."""

import inspect

import pytest
import torch

from codes import SOLVERS, load_restorer
from codes.integrations import comfyui
from codes.integrations.comfyui import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

BUILT_IN = {"IMAGE", "INT", "FLOAT", "STRING"}
IMAGES = torch.rand(2, 24, 16, 3, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", NODE_CLASS_MAPPINGS)
def test_a_node_has_what_comfyui_reads(name):
    node = NODE_CLASS_MAPPINGS[name]
    assert NODE_DISPLAY_NAME_MAPPINGS[name] and node.CATEGORY == "MR Sampler"
    kinds = {*BUILT_IN, comfyui.MODEL}
    assert isinstance(node.RETURN_TYPES, tuple) and set(node.RETURN_TYPES) <= kinds
    assert len(getattr(node, "RETURN_NAMES", node.RETURN_TYPES)) == len(node.RETURN_TYPES)
    inputs = node.INPUT_TYPES()
    assert set(inputs) <= {"required", "optional", "hidden"}
    for kind, *rest in inputs["required"].values():
        assert (isinstance(kind, list) and kind) or kind in kinds
        if rest and kind in ("INT", "FLOAT"):
            assert rest[0]["min"] <= rest[0]["default"] <= rest[0]["max"]
    # The executor makes an object without arguments and calls FUNCTION with the inputs by name.
    assert set(inspect.signature(getattr(node(), node.FUNCTION)).parameters) == set(inputs["required"])


def run(name, **inputs):
    node = NODE_CLASS_MAPPINGS[name]
    results = getattr(node(), node.FUNCTION)(**inputs)
    assert len(results) == len(node.RETURN_TYPES)
    return results


@pytest.fixture(scope="module")
def model(weights):
    (loaded,) = run("MRSamplerLoad", path=str(weights), device="cpu")
    return loaded


@pytest.mark.parametrize("solver", ["recommended", *SOLVERS])
def test_restore_gives_the_images_of_the_restorer(model, weights, solver):
    (restored,) = run("MRSamplerRestore", model=model, image=IMAGES, nfe=2, solver=solver, seed=3, strength=0.5)
    assert restored.shape == IMAGES.shape and restored.is_contiguous() and restored.dtype == torch.float32
    restorer = load_restorer(weights, device="cpu")
    algorithm = None if solver == "recommended" else solver
    for result, image in zip(restored, IMAGES, strict=True):
        expected = restorer(image.permute(2, 0, 1), nfe=2, algorithm=algorithm, seed=3, strength=0.5)
        assert torch.equal(result, expected.permute(1, 2, 0))


def test_zero_evaluations_mean_the_recommended_number_and_alpha_is_left_out(model):
    with_alpha = torch.cat([IMAGES, torch.ones(2, 24, 16, 1)], dim=3)
    (restored,) = run(
        "MRSamplerRestore", model=model, image=with_alpha, nfe=0, solver="recommended", seed=0, strength=1.0
    )
    expected = model(IMAGES[0].permute(2, 0, 1), seed=0, strength=1.0)
    assert torch.equal(restored[0], expected.permute(1, 2, 0))


def test_uncertainty_is_the_spread_of_the_samples(model):
    inputs = {"image": IMAGES, "samples": 3, "nfe": 2, "solver": "recommended", "seed": 5}
    mean, spread = run("MRSamplerUncertainty", model=model, **inputs)
    drawn = model.sample(IMAGES[1].permute(2, 0, 1), 3, nfe=2, seed=5, strength=1.0)
    assert torch.equal(mean[1], drawn.mean.permute(1, 2, 0))
    assert torch.allclose(spread[1, ..., 0], (drawn.std.mean(0) / 0.2).clamp(max=1)) and spread.shape == IMAGES.shape
