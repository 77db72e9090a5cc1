"""Training data: from the options of `datasets.train` to a DataPlan."""

from collections.abc import Mapping
from dataclasses import replace

from ..config import Options, gathered
from ..data.pairs import DataError
from ..data.sets import degradation, find_items, named
from ..data.varied import NONE
from ..networks.daclip import DaCLIP
from ..networks.latent import LatentUNet
from ..sde import MeanRevertingSDE
from .data import DataPlan, Times, TrainTask
from .objective import time_weights


def training_plan(options: Options) -> DataPlan:
    """The training data. Times, and sizes that depend on the networks, are filled in by `fitted`."""
    dataset, train = options.datasets["train"], options.train
    _, tasks = gathered(lambda: _check_model(options), lambda: _tasks(options))
    names = [task.name for task in tasks]
    for name in train.task_weights:
        if name not in names:
            text = f"the training set has no such task, only {', '.join(names)}"
            raise options.error(("train", "task_weights", name), text)
    weights = _weights(names, {str(name): weight for name, weight in train.task_weights.items()}, dataset.clean_share)
    return DataPlan(
        tasks=tasks,
        times=Times((1.0,), train.prior_share, train.own_share),
        patch=dataset.GT_size or dataset.patch_size or 256,
        batch=dataset.batch_size,
        seed=options.seed,
        flip=dataset.use_flip,
        rotate=dataset.use_rot,
        min_scale=dataset.min_scale,
        shuffle=dataset.use_shuffle,
        swap=dataset.use_swap and dataset.mode == "LQGT",
        shared_images=dataset.mode in ("GT", "MDGT"),
        weights=weights,
        patches=tuple(sorted(dataset.patch_sizes)),
        cache=dataset.cache << 20,
    )


def _check_model(options: Options) -> None:
    if options.model == "latent":
        text = "latent (training the network between images and latents) is not supported; its weights can be given"
        raise options.error(("model",), text + " as path.pretrain_model_L")


def _weights(names: list[str], given: Mapping[str, float], clean_share: float) -> tuple[float, ...] | None:
    """How often tasks are drawn, relative to each other; None: all equally."""
    if NONE in names:
        degraded = sum(given.get(name, 1.0) for name in names if name != NONE)
        given = {**given, NONE: degraded * clean_share / (1 - clean_share)}
    return tuple(given.get(name, 1.0) for name in names) if given else None


def _tasks(options: Options) -> tuple[TrainTask, ...]:
    with named(options, "train"):
        return _found(options)


def _found(options: Options) -> tuple[TrainTask, ...]:
    dataset = options.datasets["train"]
    if dataset.mode == "LQ":
        raise DataError("mode LQ has no clean images to learn from; expected LQGT, GT or MD")
    clean = dataset.mode in ("GT", "MDGT")
    if clean and dataset.dataroot_GT is None:
        raise DataError(f"mode {dataset.mode}: dataroot_GT is missing, the folder of clean images")
    found = {kind: items for kind, (items, _) in find_items(options, "train").items()}
    if clean and dataset.varied:
        items, mixed = next(iter(found.values())), dataset.mixed_share
        names = (*found, NONE) if dataset.clean_share else (*found,)
        return tuple(TrainTask(name=name, items=items, varied=True, mixed_share=mixed) for name in names)
    return tuple(
        TrainTask(
            name=kind or dataset.name or "train",
            items=items,
            degradation=degradation(options, "train", kind) if clean else None,
            enlarge=1 if kind else options.enlargement_of("train"),
        )
        for kind, items in found.items()
    )


def fitted(
    plan: DataPlan, options: Options, sde: MeanRevertingSDE, daclip: DaCLIP | None, latent: LatentUNet | None
) -> DataPlan:
    """The plan with the times of a schedule and the sizes that the networks need."""
    times = replace(plan.times, weights=time_weights(sde, options.train.time_distribution))
    shape = None
    if latent is not None:
        if plan.patches:
            text = "expected none: latent networks train on crops of one size"
            raise options.error(("datasets", "train", "patch_sizes"), text)
        block = 2**latent.depth
        side = -(-plan.patch // block) * block // 2 ** (latent.depth - 1)
        shape = (latent.latent_conv.out_channels, side, side)
    return replace(plan, times=times, noise_shape=shape, clip_size=None if daclip is None else daclip.image_size)
