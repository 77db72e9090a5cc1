"""Where the weights and parameters of the metrics lie, and whether they are the right ones."""

import hashlib
from pathlib import Path
from typing import Literal

import torch
from platformdirs import user_cache_path

from ..runtime.files import digest
from ..runtime.paths import PROJECT, command

WeightsName = Literal["lpips", "fid", "niqe", "brisque"]

# Filled by scripts/fetch_weights.py, shared by all installations of this user; and the folder of a clone.
FOLDER = user_cache_path("mr-sampler", appauthor=False) / "metrics"
CLONE_FOLDER = PROJECT / "pretrained" / "metrics"
FILES: dict[WeightsName, str] = {
    "lpips": "lpips_alex.safetensors",
    "fid": "inception_fid.pt",
    "niqe": "niqe.safetensors",
    "brisque": "brisque.safetensors",
}
# What torchvision and pytorch-fid leave in the torch cache; the names end in the beginning of the sha256.
TORCH_CACHE_FILES: dict[WeightsName, str] = {
    "lpips": "alexnet-owt-7be5be79.pth",
    "fid": "pt_inception-2015-12-05-6726825d.pth",
}
_SHA256 = {
    "lpips_alex.safetensors": "44534cd66e37ce9a6258bb5e845ef8cd47c33aa68024441c7e616d63c0c1c41a",
    "inception_fid.pt": "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34",
    "niqe.safetensors": "6f2c6f6362fd33483c891798c2488c5aa02b3f92770afaa2f766880268654ca1",
    "brisque.safetensors": "60f485eb7ef0b30c772aea9d1ab7d2b49700f692fae06434b16ff28c25a39a29",
    "alexnet-owt-7be5be79.pth": "7be5be79",
    "pt_inception-2015-12-05-6726825d.pth": "6726825d",
}


class MissingWeights(FileNotFoundError):
    """A metric's weights are not on this machine; the message says how to get them."""


class WrongWeights(ValueError):
    """A file is not what its name says."""


def find_weights(name: WeightsName, folder: Path = FOLDER) -> Path:
    """The weights in `folder`, by default also in the clone's own; else in the torch cache. Never from the network."""
    paths = [folder / FILES[name], *([CLONE_FOLDER / FILES[name]] if folder == FOLDER else [])]
    if name in TORCH_CACHE_FILES:
        paths.append(Path(torch.hub.get_dir()) / "checkpoints" / TORCH_CACHE_FILES[name])
    for path in paths:
        if path.is_file():
            return path
    raise MissingWeights(f"{paths[0]}: no such file; get it with: {command('fetch-weights')} --only {name}")


def check_weights(path: Path) -> None:
    """Raise WrongWeights unless the file has the contents that its name promises."""
    check_sha256(path, _tensors_sha256(path) if path.suffix == ".safetensors" else digest(path), _SHA256[path.name])


def check_sha256(path: Path, found: str, expected: str) -> None:
    """Raise WrongWeights unless the sum begins as expected (torch's file names have the first eight digits only)."""
    if not found.startswith(expected):
        raise WrongWeights(f"{path}: sha256 is {found}, expected {expected}; move the file away and fetch it again")


def _tensors_sha256(path: Path) -> str:
    """The sha256 over names and values: the file's own depends on the version of safetensors that wrote it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise WrongWeights(f"{path}: not a safetensors file ({error}); move it away and fetch it again") from None
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].tobytes())
    return total.hexdigest()
