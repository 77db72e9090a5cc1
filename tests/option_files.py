"""Option files in pieces, and the message that a bad one gives."""

from pathlib import Path

import pytest

from codes.config import OptionsError

ROOT = Path(__file__).parent.parent
PUBLISHED = Path(__file__).parent / "data" / "published"
NETWORK = "network_G: {which_model_G: ConditionalNAFNet}\n"
BASE = "datasets: {t: {root: d}}\n" + NETWORK
DACLIP = (
    "datasets: {t: {root: d}}\n"
    "network_G: {which_model_G: ConditionalUNet, setting: {context_dim: 512, use_degra_context: true}}\n"
)
ALGORITHMS = "one of mrsampler, mrsampler-pc, posterior, sde, ode, heun"


def message(load, *arguments, **keywords) -> str:
    """What `load` says when it refuses."""
    with pytest.raises(OptionsError) as caught:
        load(*arguments, **keywords)
    return str(caught.value)
