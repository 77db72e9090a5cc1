"""Runs the commands that the documentation shows, in a folder like the project's whose files are small."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
import yaml
from safetensors.torch import load_file

from codes.commands.main import COMMANDS
from codes.data.images import save_image
from codes.networks import architecture
from codes.networks.checkpoints import Metadata, SDESettings, save_checkpoint
from codes.networks.recommended import CarefulRule, Recommended
from codes.solvers import Solver

from .documents import ROOT, Command, command
from .evaluation import random_network, write_weights
from .network_examples import GOLDEN

LEVELS = {"img_channel": 3, "width": 4, "middle_blk_num": 1, "encoder_width": 4}
THREE = LEVELS | {"enc_blk_nums": [0, 1, 1], "dec_blk_nums": [1, 1, 0], "middle_blk_num": 2}
FOUR = LEVELS | {"enc_blk_nums": [0, 1, 1, 1], "dec_blk_nums": [1, 1, 1, 0]}
# Laid over option files of the project: less work of the same kind.
LESS = {
    "train.yml": {
        "network_G": {"setting": FOUR},
        "datasets": {"train": {"batch_size": 2, "patch_size": 32}, "val": {"degradation": ["rainy"], "max_images": 1}},
        "train": {"niter": 2, "decay_iter": 1, "warmup_iter": 1, "perceptual_weight": 0, "val_freq": 2},
        "logger": {"print_freq": 1, "save_checkpoint_freq": 2},
        "stages": {"recognition": {"train.niter": 2, "train.decay_iter": 1, "datasets.train.batch_size": 2}},
    },
    "study.yml": {"datasets": {"photos": {"degradation": ["rainy", "noisy"]}}},
    "test.yml": {"datasets": {"demo": {"degradation": ["rainy", "noisy"]}}},
}
TEST_SETS = ("CBSD68", "LIVE1", "LOL-eval15/LQ", "LOL-eval15/GT", "Rain100H/LQ", "Rain100H/GT")
SMALL = ["--images", "1", "--size", "32"]
# Added to a command, for the same reason.
FEWER = {
    "calibrate": ["--images", "2", "--size", "32"],
    "reproduce": [*SMALL, "--fid", "none"],
    "study": [*SMALL, "--nfe", "2", "--model", "mine.safetensors", "--synthetic"],
    "tune": [*SMALL, "--budget", "2"],
}


def fewer(name: str, arguments: list[str]) -> list[str]:
    """The arguments for less work of the same kind; tables of all tasks become one of one task."""
    large = ("all", "overview", "wall-clock") if name == "reproduce" else ()
    shorter = ["rainy" if word in large else word for word in arguments]
    return [*shorter, *FEWER.get(name, [])]


def launched(shown: Command) -> tuple[str, list[str]] | None:
    """Name and arguments where a command of this project is started: by a script, or by `mr-sampler`."""
    words = list(shown.words)
    if words[0].endswith("torchrun"):
        words = ["python", *(word for word in words[1:] if not word.startswith("--nproc"))]
    if words[0].endswith("mr-sampler") and words[1] in COMMANDS:
        return words[1], words[2:]
    script = words[1] if words[0].endswith("python") else ""
    name = Path(script).stem.replace("_", "-")
    return (name, words[2:]) if script.endswith(".py") and name in COMMANDS else None


def recipe(target: str) -> list[Command]:
    """The commands of a target of the Makefile."""
    text = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin")
    (lines,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)*)", text, re.MULTILINE)
    return [command("Makefile", line.strip().lstrip("@")) for line in lines.splitlines()]


def furnish(folder: Path) -> None:
    """What the commands work on: option files of the project, small networks, small photos."""
    for path in ROOT.glob("options/**/*.yml"):
        new = folder / path.relative_to(ROOT)
        new.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text()
        if path.name in LESS:
            text = yaml.safe_dump({"based_on": str(path), **LESS[path.name]})
        new.write_text(text)
    tuned: dict[str, object] = {"name": "tuned", "sde": {"algorithm": "mrsampler"}, "sampler": {"num_sample_steps": 2}}
    tuned["path"] = {"pretrain_model_G": "pretrained/mr-universal.safetensors"}
    (folder / "options" / "tuned.yml").write_text(yaml.safe_dump(tuned))
    (folder / "pretrained").mkdir()
    (folder / "docs" / "images").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "solvers.md", folder / "docs")  # which a command renews
    advice = Recommended(Solver("mrsampler", 2, order=1), CarefulRule(bias=0.5, none=1.0))
    for name in ("pretrained/mr-universal", "mine"):
        write_network(folder / f"{name}.safetensors", "CodedNAFNet", FOUR, advice)
    for name, source in (
        ("IN.pth", "daclip"),
        ("pretrained/universal-ir.pth", "daclip"),
        ("pretrained/ir-sde-derain.pth", "irsde"),
    ):
        torch.save(load_file(GOLDEN / f"{source}_unet_tiny.safetensors"), folder / name)
    plain = {key: value for key, value in THREE.items() if key != "encoder_width"}
    write_network(folder / "pretrained" / "mr-tiny.safetensors", "ConditionalNAFNet", plain)
    write_weights(folder / "mr-tiny-noise.safetensors", "noise")
    rng = np.random.default_rng(0)
    save_image(rng.integers(0, 256, (256, 256, 3)).astype(np.uint8), folder / "clean" / "a.png")
    photos = ["photo.jpg", "photos/old.jpg"]
    photos += [f"{place}/{i}.png" for place in ("photos/train", "photos/val", "options/demo/GT") for i in range(2)]
    photos += [f"testsets/{place}/0.png" for place in TEST_SETS]
    for name in photos:
        coarse = rng.integers(0, 256, (12, 12, 3)).astype(np.uint8)
        save_image(coarse.repeat(4, axis=0).repeat(4, axis=1), folder / name)


def write_network(path: Path, name: str, setting: dict[str, object], advice: Recommended | None = None) -> None:
    """A checkpoint of a random network."""
    choice = architecture(name, setting)
    metadata = Metadata(choice, "velocity", SDESettings(50), recommended=advice)
    save_checkpoint(path, random_network(choice).state_dict(), metadata)


def run(shown: Command, folder: Path) -> None:
    """Run a command in a furnished folder, which is the current one; it must succeed."""
    first, *rest = shown.words
    found = launched(shown)
    if first == "make":
        for one in recipe(rest[0]):
            run(one, folder)
    elif found is None:
        _run_other(shown, folder)
    elif not found[1]:  # named only
        _run_here(found[0], ["--help"])
    elif found[0] == "app":
        _serve(found[1], folder)
    elif first.endswith("torchrun"):
        script = next(word for word in rest if word.endswith(".py"))
        options = rest[: rest.index(script)]
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", *options, ROOT / script]
        _run_outside([*start, *fewer(*found)], folder)
    elif shown.reads is not None and shown.writes is not None:
        with (folder / shown.reads).open("rb") as source, (folder / shown.writes).open("xb") as target:
            start = [sys.executable, "-m", "codes.commands.main", found[0], *found[1]]
            _run_outside(start, folder, stdin=source, stdout=target)
        assert (folder / shown.writes).stat().st_size > 0
    else:
        _run_here(found[0], fewer(*found))


def _run_here(name: str, arguments: list[str]) -> None:
    """A command by its function: importing torch takes longer than most of them."""
    main = import_module(f"codes.commands.{name.replace('-', '_')}").main
    try:
        code = main(arguments)
    except SystemExit as ended:  # how a parser ends after --help, or a bad argument
        code = ended.code
    # A random network misses the goals of a calibration, which says so with 1.
    assert code == 0 or (name, code) == ("calibrate", 1), (name, arguments)


def _run_other(shown: Command, folder: Path) -> None:
    first, *rest = shown.words
    if first.endswith("mr-sampler"):
        assert import_module("codes.commands.main").main(rest) == 0
    elif first.endswith("pip"):
        # Looks at what is installed, and installs nothing.
        quiet = ["--quiet", "--dry-run", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
        for name in ("codes", "options", "pretrained"):
            shutil.copytree(
                ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__", "*.pth")
            )
        for name in ("pyproject.toml", "README.md", "LICENSE", "requirements.txt"):
            shutil.copy(ROOT / name, folder / "source" / name)
        _run_outside([sys.executable, "-m", "pip", *rest, *quiet], folder / "source")
        shutil.rmtree(folder / "source")
    else:
        assert first.endswith("python"), shown
        script = rest[0] if (folder / rest[0]).is_file() else ROOT / rest[0]
        module = rest[0] == "-m"
        _run_outside([sys.executable, *(rest if module else [script, *rest[1:]])], ROOT if module else folder)


def _run_outside(line: list[object], folder: Path, **options: object) -> None:
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    if folder != ROOT:
        variables["PYTHONPATH"] = str(ROOT)
    pipes = {"stdout": subprocess.PIPE, **options}
    done = subprocess.run([str(word) for word in line], cwd=folder, env=variables, stderr=subprocess.PIPE, **pipes)
    assert done.returncode == 0, done.stderr.decode()


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _serve(arguments: list[str], folder: Path) -> None:
    """Start the page on a free port, look at it, and stop it with Ctrl-C."""
    line = [sys.executable, str(ROOT / "app.py"), *arguments, "--port", "0"]
    # Tests that run in the background inherit that Ctrl-C is ignored; the page is one that a user has started.
    page = subprocess.Popen(
        line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    )
    try:
        assert page.stdout is not None and page.stderr is not None
        address = re.search(r"http://[\d.:]+", page.stdout.readline())
        assert address is not None, page.stderr.read()
        assert "MR Sampler" in urllib.request.urlopen(address[0]).read().decode()
        page.send_signal(signal.SIGINT)
        assert page.wait(60) == 0
    finally:
        page.kill()
        page.communicate()
