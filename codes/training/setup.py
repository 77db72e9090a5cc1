"""From options to a Run: finds the data, loads the networks and puts the objective together."""

import copy
import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import Options, OptionsError, build_sde, build_solvers, check_settings, gathered
from ..data.sets import Task, find_data
from ..metrics import LPIPS, MissingWeights, make_scorer
from ..networks import Architecture, architecture, build
from ..networks.checkpoints import CheckpointError, Metadata, load_network, read_checkpoint
from ..networks.daclip import DaCLIP
from ..networks.growth import grow
from ..networks.latent import LatentUNet
from ..networks.nafnet import NAFNet
from ..networks.predictor import arithmetic, resolve_precision
from ..restoration.loading import described, load_encoders, sde_settings
from ..restoration.restorer import Restorer
from ..runtime.distributed import Process
from ..runtime.paths import locate, looked
from ..sde import MeanRevertingSDE
from . import sets
from .blocks import with_fast_gradients
from .data import DataPlan
from .distillation import Distillation, make_distillation
from .objective import Distance, Objective
from .validation import Validation

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inputs:
    """Everything an option file names, found and checked before a network is loaded or a file written."""

    data: DataPlan
    validation: tuple[Task, ...]


@dataclass(frozen=True, kw_only=True)
class Models:
    """The trained network, its EMA copy, and the frozen encoders."""

    network: nn.Module
    ema: nn.Module
    choice: Architecture
    sde: MeanRevertingSDE
    daclip: DaCLIP | None = None
    latent: LatentUNet | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training, ready to start."""

    folder: Path
    options: Options
    data: DataPlan
    models: Models
    objective: Objective
    device: torch.device
    dtype: torch.dtype | None  # of the networks' arithmetic, None for float32
    distillation: Distillation | None = None
    validation: Validation | None = None

    @property
    def metadata(self) -> Metadata:
        """Recorded in the checkpoints: architecture, prediction and schedule."""
        fit_target, settings = self.objective.fit_target, sde_settings(self.models.sde)
        return Metadata(self.models.choice, fit_target, settings, source=self.folder.name)

    @property
    def restorer(self) -> Restorer:
        """Restores images with the averaged network."""
        return Restorer(
            network=self.models.ema,
            sde=self.models.sde,
            fit_target=self.objective.fit_target,
            device=self.device,
            daclip=self.models.daclip,
            latent=self.models.latent,
            precision=self.options.precision,
            tile="off",
        )


def find_inputs(options: Options, later: Collection[str] = ()) -> Inputs:
    """Find everything the options name; raises OptionsError for what is missing.

    later: keys of `path` whose files an earlier stage is going to write.
    """

    def files() -> None:
        keys = ("pretrain_model_G", "grow_from", "pretrain_model_L", "daclip", "resume_state")
        named = {key: getattr(options.path, key) for key in keys if key not in later}
        missing = [key for key, path in named.items() if path is not None and not locate(path).exists()]
        gathered(*(partial(_no_such_file, options, key) for key in missing))

    data, validation, *_ = gathered(
        lambda: sets.training_plan(options),
        lambda: find_data(options),
        files,
        lambda: check_settings(options),
        lambda: _check_distillation(options),
        lambda: build_solvers(options, build_sde(options)),  # reports bad solvers before anything is loaded
    )
    _check_perceptual(options, data)
    return Inputs(data, validation)


def _no_such_file(options: Options, key: str) -> None:
    path = getattr(options.path, key)
    raise options.error(("path", key), f"{path}: no such file{looked(path)}")


def _check_perceptual(options: Options, data: DataPlan) -> None:
    train, smallest = options.train, min([data.patch, *(patch for _, patch in data.patches)])
    if not train.perceptual_weight:
        return
    need = ""
    if train.target not in ("data", "velocity"):
        # An error of a noise prediction is a hundredfold error of the image at late times.
        need = f"needs train.target data or velocity, got {train.target}"
    elif options.path.pretrain_model_L is not None:
        need = "needs images, got the latents of path.pretrain_model_L"
    elif smallest < LPIPS.smallest:
        need = f"needs patches of at least {LPIPS.smallest} pixels, got {smallest}"
    if need:
        raise options.error(("train", "perceptual_weight"), need)


def _check_distillation(options: Options) -> None:
    distill, target = options.train.distill, options.train.target
    if distill is None:
        return
    if target not in ("data", "velocity"):
        text = f"needs train.target data or velocity, got {target}"
        raise options.error(("train", "distill"), text)
    if distill.teacher is None and options.path.pretrain_model_G is None:
        text = "missing, and path.pretrain_model_G names no weights to begin with"
        raise options.error(("train", "distill", "teacher"), text)
    if distill.teacher is not None and not locate(distill.teacher).exists():
        text = f"{distill.teacher}: no such file{looked(distill.teacher)}"
        raise options.error(("train", "distill", "teacher"), text)


def load_models(options: Options, device: torch.device) -> Models:
    """The networks of an option file: new, or with the weights that it names."""
    wanted, path = options.network_G, options.path
    try:
        recorded: dict[str, Any] = {}
        if path.pretrain_model_G is not None:
            network, metadata = load_network(
                locate(path.pretrain_model_G), wanted.which_model_G, wanted.setting, wanted.variant
            )
            choice, recorded = metadata.architecture, described(metadata)
            log.info("initial weights: %s (%s)", metadata.source, metadata.weights)
        else:
            choice = architecture(wanted.which_model_G or "", wanted.setting, options.variant)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(options.seed)
                network = build(choice)
            if path.grow_from is not None:
                _grow(options, network)
        daclip, latent = load_encoders(options, device)
        for encoder in (daclip, latent):
            if encoder is not None:
                encoder.requires_grad_(False)
    except (CheckpointError, FileNotFoundError) as error:
        raise OptionsError(str(error)) from error
    except ValueError as error:
        raise OptionsError(f"{options.file}: {error}") from error
    if options.train.recognition_weight and not hasattr(network, "recognise"):
        text = f"needs a network that recognises degradations, such as CodedNAFNet, got {choice.which_model_G}"
        raise options.error(("train", "recognition_weight"), text)
    network = network.to(device)
    return Models(
        ema=copy.deepcopy(network).requires_grad_(False).eval(),
        network=with_fast_gradients(network).train(),
        choice=choice,
        sde=build_sde(options, recorded),
        daclip=daclip,
        latent=latent,
    )


def _grow(options: Options, network: nn.Module) -> None:
    weights = read_checkpoint(locate(options.path.grow_from or "")).state
    try:
        if not isinstance(network, NAFNet):
            raise ValueError(f"needs a NAFNet, got {type(network).__name__}")
        grow(network, weights)
    except ValueError as error:
        raise options.error(("path", "grow_from"), str(error)) from error
    log.info("initial weights: those of %s, with a new level", options.path.grow_from)


def make_run(options: Options, inputs: Inputs, folder: Path, device: torch.device, process: Process) -> Run:
    """Put everything together; raises OptionsError for what is missing or does not fit."""
    batch, parts = inputs.data.batch, process.world * options.train.accumulate
    if batch % parts:
        raise options.error(
            ("datasets", "train", "batch_size"),
            f"{batch} cannot be divided among {process.world} processes with train.accumulate "
            f"{options.train.accumulate}: expected a multiple of {parts}",
        )
    try:
        dtype = resolve_precision(options.precision, device)
    except ValueError as error:
        raise OptionsError(f"{options.file}: {error}") from error
    models = load_models(options, device)
    objective = Objective(
        sde=models.sde,
        target=options.train.target,
        loss=options.train.loss_type,
        weight=options.train.weight,
        weighting=options.train.time_weighting,
        mean_weight=options.train.mean_weight,
        perceptual=_perceptual_distance(options, device, dtype),
        perceptual_weight=options.train.perceptual_weight,
    )
    distillation = None
    if options.train.distill is not None:
        distillation = make_distillation(
            options, models.network, models.sde, target=objective.fit_target, latent=models.latent is not None
        )
    return Run(
        folder=folder,
        options=options,
        data=sets.fitted(inputs.data, options, models.sde, models.daclip, models.latent),
        models=models,
        objective=objective,
        device=device,
        dtype=dtype,
        distillation=distillation,
        validation=_make_validation(options, inputs, models.sde, objective, device) if process.is_main else None,
    )


def _perceptual_distance(options: Options, device: torch.device, dtype: torch.dtype | None) -> Distance | None:
    """LPIPS where it is a part of the loss, in the precision of the training."""
    if not options.train.perceptual_weight:
        return None
    try:
        lpips = LPIPS().to(device)
        lpips.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    except MissingWeights as error:
        raise options.error(("train", "perceptual_weight"), str(error)) from error

    def distance(a: Tensor, b: Tensor) -> Tensor:
        with arithmetic(dtype, device):
            return lpips.distance(*(one.contiguous(memory_format=torch.channels_last) for one in (a, b)))

    return distance


def _make_validation(
    options: Options, inputs: Inputs, sde: MeanRevertingSDE, objective: Objective, device: torch.device
) -> Validation | None:
    if not inputs.validation:
        return None
    solvers = build_solvers(options, sde)
    given = {solver.fit_target for _, solver, _ in solvers} - {None, objective.fit_target}
    if given:
        text = f"{given.pop()} contradicts train.target {options.train.target}"
        raise options.error(("sampler", "fit_target"), text)
    plans = tuple((label, plan) for label, _, plan in solvers)
    scorer, notes = make_scorer(("psnr", "lpips"), 0, device)
    for note in notes:
        log.info(note)
    return Validation(tasks=inputs.validation, plans=plans, scorer=scorer, seed=options.seed)
