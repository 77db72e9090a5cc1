"""From options to work: finding data and weights, loading networks, preparing the results folder."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from ..config import (
    Options,
    OptionsError,
    PairingRule,
    build_sde,
    build_solvers,
    check_against_checkpoint,
    check_context_dim,
    difference,
    resolved,
)
from ..config.errors import error_at
from ..data.degradations import Degrade, gaussian_noise, mask_inpainting, super_resolution, tensor_degradation
from ..data.pairs import DataError, Item, Pattern, find_images, find_tasks, pair
from ..networks import architecture
from ..networks.checkpoints import (
    CheckpointError,
    Metadata,
    SDESettings,
    load_network,
    missing_file_message,
    published_sde,
)
from ..networks.daclip import DaCLIP
from ..networks.latent import LatentUNet
from ..networks.unet import UNet
from ..restoration.restorer import ImageRestorer
from ..runtime.distributed import Process
from ..runtime.environment import write_environment
from ..runtime.files import write_atomically
from ..runtime.paths import locate
from ..sde import MeanRevertingSDE
from .run import Job, Task

log = logging.getLogger(__name__)

# What does not change the images: a run may be resumed with other values.
_FREE = ("results", "batch_size", "workers", "contact_sheet", "metrics")
# What does not change the weights.
_FREE_IN_TRAINING = (
    *_FREE,
    *("logger", "use_tb_logger", "sampler", "sde.algorithm", "sde.sample_T", "train.val_freq", "train.accumulate"),
    *("datasets.train.n_workers", "datasets.train.cache"),
)


# ---- data


def find_data(options: Options) -> tuple[Task, ...]:
    """The tasks of all test sets; several sets of one task name get the set's name in front."""
    tasks = []
    for key in options.test_sets:
        try:
            tasks += _tasks_of(options, key)
        except DataError as error:
            raise error_at(options.file, ("datasets", key), str(error)) from error
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise error_at(options.file, ("datasets",), f"two sets are called {name!r}: give them different names")
    return tuple(tasks)


def _tasks_of(options: Options, key: str) -> list[Task]:
    dataset = options.datasets[key]
    name = dataset.name or key
    rule: str | Pattern = (
        Pattern(dataset.pairing.lq, dataset.pairing.gt) if isinstance(dataset.pairing, PairingRule) else dataset.pairing
    )
    if dataset.task_root is not None:
        wanted = None if dataset.tasks is None and options.distortion is None else options.tasks_of(key)
        found = find_tasks(locate(dataset.task_root), wanted)
        single = len(options.test_sets) == 1
        return [
            _task(task if single else f"{name}-{task}", *pair(lq, gt, rule), dataset.max_images)
            for task, (lq, gt) in found.items()
        ]
    if dataset.mode == "LQ":
        images = find_images(locate(dataset.dataroot_LQ or ""))
        items = [Item(image, path, None) for image, path in images.items()]
        return [replace(_task(name, items, [], dataset.max_images), enlarge=options.enlargement_of(key))]
    if dataset.mode == "GT":
        images = find_images(locate(dataset.dataroot_GT or ""))
        items = [Item(image, None, path) for image, path in images.items()]
        kinds = options.degradations_of(key)
        alone = len(options.test_sets) == 1
        names = [name] if len(kinds) == 1 else [kind if alone else f"{name}-{kind}" for kind in kinds]
        return [
            replace(_task(called, items, [], dataset.max_images), degrade=degradation(options, key, kind)())
            for called, kind in zip(names, kinds, strict=True)
        ]
    items, problems = pair(locate(dataset.dataroot_LQ or ""), locate(dataset.dataroot_GT or ""), rule)
    return [replace(_task(name, items, problems, dataset.max_images), enlarge=options.enlargement_of(key))]


def degradation(options: Options, key: str, kind: str) -> Callable[[], Degrade]:
    """How a dataset of clean images is degraded: our function where the dataset names one, else the published rule.

    Not the function, which another process could not be given, but what makes it.
    """
    settings = options.degradation
    if kind == "super-resolution":
        return partial(super_resolution, settings.scale)
    if options.datasets[key].degradation is None:
        if kind == "noisy":
            return partial(gaussian_noise, settings.sigma)
        if kind == "uncompleted" and settings.mask_root is not None:
            return partial(mask_inpainting, locate(settings.mask_root))
    return partial(tensor_degradation, kind)


def _task(name: str, items: list[Item], problems: list[str], most: int | None) -> Task:
    # With max_images what was left out beyond the first N is none of the run's business.
    return Task(name, tuple(items[:most]), tuple(problems) if most is None else ())


# ---- weights


def check_weights(options: Options) -> None:
    """Raise unless every weight file that the options name is there."""
    network = options.network_G
    if options.path.pretrain_model_G is None:
        raise error_at(options.file, ("path", "pretrain_model_G"), "missing, nothing to restore images with")
    wanted = None
    if network.which_model_G is not None:
        try:
            wanted = architecture(network.which_model_G, network.setting, network.variant)
        except ValueError as error:
            raise OptionsError(f"{options.file}: {error}") from error
    for key, chosen in (
        ("pretrain_model_G", wanted),
        ("daclip", architecture("DaCLIP", {})),
        ("pretrain_model_L", architecture("UNet", {})),
    ):
        path = getattr(options.path, key)
        if path is not None and not locate(path).exists():
            raise error_at(options.file, ("path", key), missing_file_message(locate(path), chosen))


def load_restorer(options: Options, device: torch.device) -> ImageRestorer:
    """Load the networks of an option file, checking them against the file."""
    check_weights(options)
    network, path = options.network_G, options.path
    try:
        model, metadata = load_network(
            locate(path.pretrain_model_G or ""), network.which_model_G, network.setting, network.variant
        )
        log.info("network: %s, %s weights of %s", metadata.architecture, metadata.weights, metadata.source)
        check_against_checkpoint(options, described(metadata))
        daclip = None
        if path.daclip is not None:
            loaded, clip_metadata = load_network(locate(path.daclip))
            if not isinstance(loaded, DaCLIP):
                found = clip_metadata.architecture
                raise error_at(options.file, ("path", "daclip"), f"{path.daclip} is not DA-CLIP but {found}")
            check_context_dim(options, int(clip_metadata.architecture.setting["embed_dim"]))
            daclip = loaded.to(device)
        elif isinstance(model, UNet) and (model.takes_text_context or model.takes_image_context):
            raise error_at(options.file, ("path", "daclip"), f"missing, {metadata.architecture} takes its contexts")
        latent = None
        if path.pretrain_model_L is not None:
            first_stage, _ = load_network(locate(path.pretrain_model_L), "UNet", options.network_L.setting)
            assert isinstance(first_stage, LatentUNet)
            latent = first_stage.to(device)
    except CheckpointError as error:
        raise OptionsError(str(error)) from error
    return ImageRestorer(
        model.to(device),
        build_sde(options, described(metadata)),
        _fit_target(options, metadata),
        device,
        daclip,
        latent,
        options.precision,
        options.compile,
        options.tile,
    )


def described(metadata: Metadata) -> dict[str, Any]:
    """Checkpoint metadata as the options know it, with the published SDE where the file records none."""
    sde = metadata.sde
    choice = metadata.architecture
    result: dict[str, Any] = {
        "which_model_G": choice.which_model_G,
        "variant": choice.variant,
        "setting": dict(choice.setting),
        "fit_target": metadata.fit_target,
    }
    if sde is not None:
        result["sde"] = asdict(sde)
    else:
        published = published_sde(choice)
        # Only the convention: max_sigma differs between published checkpoints of one architecture.
        result["sde"] = {} if published is None else {"convention": published.convention}
    return result


def _fit_target(options: Options, metadata: Metadata) -> str:
    """What the network predicts: the file's word, the checkpoint's, else noise as all published checkpoints do."""
    given = {arguments.get("fit_target") for _, arguments in options.solvers()} - {None}
    if len(given) > 1:
        raise error_at(options.file, ("sampler", "fit_target"), f"one network predicts one thing, not {given}")
    return str(next(iter(given), None) or metadata.fit_target or "noise")


# ---- the results folder


def open_folder(options: Options, fresh: bool, device: torch.device, process: Process) -> Path:
    """The run's folder, made and described by the main process; every process calls this."""
    if process.is_main:
        write_environment(folder := prepare_folder(options, fresh), device, process.world)
    process.barrier()
    if not process.is_main:
        folder = newest_folder(options) if fresh else prepare_folder(options, False)
    return folder


def prepare_folder(options: Options, fresh: bool) -> Path:
    """The run's folder with its options in it; refuses a folder that was made with other options."""
    folder = Path(options.results) / options.run_name
    if fresh:
        folder = _numbered(folder)
    written = folder / "options.yml"
    content = resolved(options)
    if written.is_file():
        before = yaml.safe_load(written.read_text())
        changes = difference(_binding(before, options.kind), _binding(content, options.kind))
        if changes:
            raise OptionsError(
                f"{folder}: was made with other options, going on would mix results; --fresh starts a new folder\n"
                + "\n".join(f"  {change}" for change in changes)
            )
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(written, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
    except OSError as error:
        raise OptionsError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return folder


def newest_folder(options: Options) -> Path:
    """The folder that --fresh has just made, for the other processes."""
    first = Path(options.results) / options.run_name
    number = 2
    while (following := first.with_name(f"{first.name}-{number}")).exists():
        number += 1
    return first if number == 2 else following.with_name(f"{first.name}-{number - 1}")


def _binding(content: dict[str, Any], kind: str, at: str = "") -> dict[str, Any]:
    """The options that must not change within a results folder."""
    free = _FREE_IN_TRAINING if kind == "train" else _FREE
    result = {}
    for key, value in content.items():
        validates = kind == "train" and at == "datasets." and key != "train"
        if f"{at}{key}" not in free and not validates:
            result[key] = _binding(value, kind, f"{at}{key}.") if isinstance(value, dict) else value
    return result


def _numbered(folder: Path) -> Path:
    """The folder itself if there is none yet, else the first free FOLDER-2, FOLDER-3, ..."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def make_job(options: Options, tasks: Sequence[Task], restorer: ImageRestorer, folder: Path) -> Job:
    """The work: every task with every solver."""
    plans = tuple((label, plan) for label, _, plan in build_solvers(options, restorer.sde))
    batch = 4 if restorer.device.type == "cuda" else 1
    size = batch if options.batch_size == "auto" else int(options.batch_size)
    return Job(folder, tuple(tasks), plans, options.seed, size)


def sde_settings(sde: MeanRevertingSDE) -> SDESettings:
    """The schedule as checkpoints record it."""
    return SDESettings(sde.max_sigma, sde.T, sde.schedule, sde.eps, sde.convention)
