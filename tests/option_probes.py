"""What options lead to: small runs of the real commands, each with a result to compare."""

import json
from pathlib import Path
from typing import Any

import torch

from codes.commands.test import main as run_test
from codes.commands.train import main as train
from codes.config import OptionsError, build_sde, build_solvers, load_options
from codes.evaluation.binding import Opened
from codes.evaluation.job import make_job
from codes.restoration.loading import restorer_of
from codes.training import loader, loop
from codes.training.setup import find_inputs, make_run

from .evaluation import SETTING
from .training.helpers import ALONE

ABSENT = object()  # the value of a key that is not given


def written(folder: Path, options: dict[str, Any], changes: dict[str, Any]) -> Path:
    """An option file in a new folder; `@` in a value is the world's folder."""
    options = json.loads(json.dumps(options))
    for key, value in changes.items():
        *sections, last = key.split(".")
        target = options
        for section in sections:
            target = target.setdefault(section, {})
        if value is ABSENT:
            target.pop(last, None)
        else:
            target[last] = json.loads(json.dumps(value))  # a copy: later keys may change it
    new = folder / "runs" / str(len(list((folder / "runs").glob("*"))))
    new.mkdir(parents=True)
    options.setdefault("results", str(new / "results"))
    file = new / "run.yml"
    file.write_text(json.dumps(options).replace("@", f"{folder}/").replace("#", f"{new}/"))
    return file


TEST = {
    "name": "run",
    "device": "cpu",
    "datasets": {"val": {"root": "@one"}},
    "path": {"pretrain_model_G": "@tiny.safetensors"},
    "sde": {"algorithm": "posterior"},
    "sampler": {"num_sample_steps": 2},
    "metrics": {"names": ["psnr"]},
    "contact_sheet": 0,
}
TRAIN = {
    "name": "run",
    "device": "cpu",
    "datasets": {
        "train": {"mode": "GT", "dataroot_GT": "@photos", "degradation": ["noisy", "hazy"], "batch_size": 2,
                  "patch_size": 32, "n_workers": 0},
    },
    "network_G": {"which_model_G": "ConditionalNAFNet", "setting": SETTING},
    "sde": {"convention": "daclip"},
    "sampler": {"num_sample_steps": 2},
    "train": {"niter": 3, "target": "velocity", "lr_G": 1e-2},
}  # fmt: skip
VALIDATED = {"datasets.val": {"mode": "GT", "dataroot_GT": "@photos", "degradation": "noisy", "max_images": 1}}


def files_of(folder: Path) -> dict[str, Any]:
    """What a run wrote: images and weights, and everything in records and logs that does not depend on time."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [
                {k: v for k, v in line.items() if k not in ("seconds", "images/s", "check")} for line in lines
            ]
        else:
            found[name] = path.read_bytes() if path.suffix == ".png" else None
    return found


# ---- what options lead to; each returns something to compare


def evaluated(folder: Path, changes: dict[str, Any], monkeypatch: Any = None) -> Any:
    """What test.py writes."""
    file = written(folder, TEST, changes)
    code = run_test(["-opt", str(file)])
    return code, files_of(file.parent)


def trained(folder: Path, changes: dict[str, Any], monkeypatch: Any = None) -> Any:
    """The weights after three steps, or why there are none."""
    try:
        file = written(folder, TRAIN, changes)
        options = load_options(file, kind="train")
        run = make_run(options, find_inputs(options), file.parent, torch.device("cpu"), ALONE)
        learner = loop.make_learner(run, ALONE)
        for batch in loader.batches(run.data, learner.done, 3):
            loop.step(run, learner, batch, ALONE)
    except OptionsError as error:
        return str(error).replace(str(file), "")
    return {name: value.numpy().tobytes() for name, value in run.models.network.state_dict().items()}


def train_run(folder: Path, changes: dict[str, Any], monkeypatch: Any = None) -> Any:
    """What train.py writes."""
    file = written(folder, TRAIN, changes)
    code = train(["-opt", str(file)])
    return code, files_of(file.parent)


def schedule(folder: Path, changes: dict[str, Any], monkeypatch: Any = None) -> Any:
    """The schedule and the plans of the solvers."""
    options = load_options(written(folder, TEST, {"path.pretrain_model_G": "none.pth", **changes}))
    sde = build_sde(options)
    return sde, [(label, plan) for label, _, plan in build_solvers(options, sde)]


def loaded(folder: Path, changes: dict[str, Any], monkeypatch: Any = None) -> Any:
    """The restorer, or why there is none."""
    file = written(folder, TEST, changes)
    try:
        restorer = restorer_of(load_options(file))
    except OptionsError as error:
        return str(error).replace(str(file), "")
    parts = (restorer.network, restorer.daclip, restorer.latent)
    return restorer.fit_target, restorer.compile, restorer.precision, [type(part).__name__ for part in parts]


def job(folder: Path, changes: dict[str, Any], monkeypatch: Any = None) -> Any:
    """How a test run goes about its work."""
    options = load_options(written(folder, TEST, changes))
    restorer = restorer_of(options)
    labels = {label: label for label, _, _ in restorer.solvers}
    made = make_job(options, (), restorer, Opened(folder=folder, made="", labels=labels, solvers={}))
    return made.batch_size, made.workers, made.seed, made.sheet_images


def device(folder: Path, changes: dict[str, Any], monkeypatch: Any) -> Any:
    """The device that test.py chooses."""
    chosen = []

    def choose(name: str) -> torch.device:
        chosen.append(name)
        return torch.device("cpu")

    monkeypatch.setattr("codes.runtime.device.choose_device", choose)
    evaluated(folder, changes)
    return chosen


def readers(folder: Path, changes: dict[str, Any], monkeypatch: Any) -> Any:
    """How train.py has its images read, and what it logs to."""
    calls: list[Any] = []
    batches, journal = loader.batches, loop.Journal

    def recording(plan: Any, *arguments: Any, workers: int = 0, **more: Any) -> Any:
        calls.append((workers, plan.cache))
        return batches(plan, *arguments, **more)

    def logging(folder: Path, done: int, tensorboard: bool) -> Any:
        calls.append(tensorboard)
        return journal(folder, done, False)

    monkeypatch.setattr(loop, "batches", recording)
    monkeypatch.setattr(loop, "Journal", logging)
    assert train_run(folder, changes)[0] == 0
    monkeypatch.undo()
    return calls


def parts(folder: Path, changes: dict[str, Any], monkeypatch: Any) -> Any:
    """The number of samples in each call of the loss."""
    sizes, loss = [], loop.batch_loss

    def recording(run: Any, network: Any, batch: Any) -> Any:
        sizes.append(len(batch))
        return loss(run, network, batch)

    monkeypatch.setattr(loop, "batch_loss", recording)
    trained(folder, changes)
    monkeypatch.undo()
    return sizes
