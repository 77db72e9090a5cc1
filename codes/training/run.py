"""The training loop, and from options to what it needs."""

import copy
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from ..config import Options, OptionsError, build_sde, build_solvers, resolved
from ..config.errors import error_at
from ..data.pairs import DataError
from ..data.sets import find_data
from ..metrics import LPIPS, MissingWeights, make_scorer
from ..networks import Architecture, architecture, build
from ..networks.checkpoints import CheckpointError, Metadata, load_network
from ..networks.daclip import DaCLIP
from ..networks.latent import LatentUNet
from ..networks.predictor import arithmetic, resolve_precision
from ..restoration.loading import described, load_encoders, sde_settings
from ..restoration.restorer import Restorer
from ..runtime.distributed import Process
from ..runtime.paths import locate
from ..runtime.signals import stop_on_signal
from ..sde import MeanRevertingSDE
from . import sets, states
from .data import Batch, Plan, batches
from .journal import Journal, Meter
from .objective import Distance, Objective
from .optimisers import learning_rate, make_optimiser, update_ema
from .validation import Validation

log = logging.getLogger(__name__)


class TrainingError(Exception):
    """Stops a training; the message says where."""


@dataclass(frozen=True)
class Models:
    """The networks: the one that learns, the average of its weights, and those that are only asked."""

    network: nn.Module
    ema: nn.Module
    choice: Architecture
    sde: MeanRevertingSDE
    daclip: DaCLIP | None = None
    latent: LatentUNet | None = None


@dataclass(frozen=True)
class Run:
    """All that a training does."""

    folder: Path
    options: Options
    data: Plan
    models: Models
    objective: Objective
    device: torch.device
    validation: Validation | None = None

    @property
    def metadata(self) -> Metadata:
        """What the checkpoints say about themselves."""
        fit_target, settings = self.objective.fit_target, sde_settings(self.models.sde)
        return Metadata(self.models.choice, fit_target, settings, source=self.folder.name)

    @property
    def restorer(self) -> Restorer:
        """The averaged network at work."""
        models = self.models
        return Restorer(
            network=models.ema,
            sde=models.sde,
            fit_target=self.objective.fit_target,
            device=self.device,
            daclip=models.daclip,
            latent=models.latent,
            precision=self.options.precision,
            tile="off",
        )


# ---- from options


def check(options: Options) -> Plan:
    """Raise OptionsError for what is missing, before anything is loaded or written."""
    plan = sets.training_plan(options)
    for key in ("pretrain_model_G", "pretrain_model_L", "daclip", "resume_state"):
        path = getattr(options.path, key)
        if path is not None and not locate(path).exists():
            raise error_at(options.file, ("path", key), f"{path}: no such file")
    _check_perceptual(options, plan)
    find_data(options)
    build_solvers(options, build_sde(options))
    return plan


def _check_perceptual(options: Options, plan: Plan) -> None:
    train, smallest = options.train, min([plan.patch, *(patch for _, patch in plan.patches)])
    if not train.perceptual_weight:
        return
    need = ""
    if train.target not in ("data", "velocity"):
        # A noise prediction amounts to a hundredfold error of the image at late times.
        need = f"needs train.target data or velocity, got {train.target}"
    elif options.path.pretrain_model_L is not None:
        need = "needs images, got the latents of path.pretrain_model_L"
    elif smallest < LPIPS.smallest:
        need = f"needs patches of at least {LPIPS.smallest} pixels, got {smallest}"
    if need:
        raise error_at(options.file, ("train", "perceptual_weight"), need)


def described_work(options: Options) -> str:
    """What a run would do: the options in force, data, network."""
    plan = check(options)
    lines = [yaml.safe_dump(resolved(options), sort_keys=False, allow_unicode=True).rstrip(), ""]
    lines += [f"ignored: {line}" for line in options.ignored]
    lines += [f"train on {task.name}: {len(task.items)} images" for task in plan.tasks]
    lines += [f"validate on {task.name}: {len(task.items)} images" for task in find_data(options)]
    network = load_models(options, torch.device("cpu")).network
    count = sum(parameter.numel() for parameter in network.parameters())
    folder = Path(options.results) / options.run_name
    lines.append(f"network: {count:,} parameters; {options.train.niter} steps into {folder}")
    return "\n".join(lines)


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
            log.info("weights to begin with: %s (%s)", metadata.source, metadata.weights)
        else:
            choice = architecture(wanted.which_model_G or "", wanted.setting, wanted.variant)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(options.seed)
                network = build(choice)
        daclip, latent = load_encoders(options, device)
    except (CheckpointError, FileNotFoundError) as error:
        raise OptionsError(str(error)) from error
    except ValueError as error:
        raise OptionsError(f"{options.file}: {error}") from error
    for encoder in (daclip, latent):
        if encoder is not None:
            encoder.requires_grad_(False)
    network = network.to(device)
    ema = copy.deepcopy(network).requires_grad_(False)
    return Models(network.train(), ema.eval(), choice, build_sde(options, recorded), daclip, latent)


def make_objective(options: Options, sde: MeanRevertingSDE, device: torch.device) -> Objective:
    """What is matched."""
    train = options.train
    return Objective(
        sde,
        train.target,
        train.loss_type,
        train.weight,
        train.time_weighting,
        train.mean_weight,
        perceptual_distance(options, device),
        train.perceptual_weight,
    )


def perceptual_distance(options: Options, device: torch.device) -> Distance | None:
    """LPIPS where it is a part of the loss, in the precision of the training."""
    if not options.train.perceptual_weight:
        return None
    try:
        lpips = LPIPS().to(device)
    except MissingWeights as error:
        raise error_at(options.file, ("train", "perceptual_weight"), str(error)) from error
    dtype = resolve_precision(options.precision, device)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        with arithmetic(dtype, device):
            return lpips.distance(a, b)

    return distance


def make_run(options: Options, folder: Path, device: torch.device, process: Process) -> Run:
    """Put everything together; raises OptionsError for what is missing or does not fit."""
    data = sets.training_plan(options)
    parts = process.world * options.train.accumulate
    if data.batch % parts:
        raise error_at(
            options.file,
            ("datasets", "train", "batch_size"),
            f"{data.batch} cannot be divided among {process.world} processes with train.accumulate "
            f"{options.train.accumulate}: expected a multiple of {parts}",
        )
    models = load_models(options, device)
    data = sets.fitted(data, options, models.sde, models.daclip, models.latent)
    objective = make_objective(options, models.sde, device)
    validation = None
    if options.test_sets and process.is_main:
        solvers = build_solvers(options, models.sde)
        given = {solver.fit_target for _, solver, _ in solvers} - {None, objective.fit_target}
        if given:
            text = f"{given.pop()} contradicts train.target {options.train.target}"
            raise error_at(options.file, ("sampler", "fit_target"), text)
        plans = tuple((label, plan) for label, _, plan in solvers)
        scorer, notes = make_scorer(("psnr", "lpips"), 0, device)
        for note in notes:
            log.info(note)
        validation = Validation(find_data(options), plans, scorer, options.seed)
    return Run(folder, options, data, models, objective, device, validation)


# ---- one step


def contexts(models: Models, batch: Batch) -> tuple[Tensor, ...]:
    """DA-CLIP's features of degraded patches, in the order that the networks take them; nothing without it."""
    if models.daclip is None or batch.clip is None:
        return ()
    with torch.no_grad():
        features = models.daclip.controlled(batch.clip)
    return features.degradation.float(), features.image.float()


def batch_loss(run: Run, network: Callable[..., Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss of some samples, and the prediction it is of."""
    models = run.models
    batch = batch.to(run.device)
    mu, x0 = batch.lq, batch.gt
    if models.latent is not None:
        with torch.no_grad():
            mu, x0 = models.latent.encode(mu)[0], models.latent.encode(x0)[0]
    features = contexts(models, batch)
    dtype = resolve_precision(run.options.precision, run.device)
    takes_mu = getattr(models.network, "takes_mu", True)
    weight, kinds = run.options.train.recognition_weight, batch.kinds
    logits: list[Tensor] = []  # of the call with gradients, which is one

    def predict(x: Tensor, mu: Tensor, t: Tensor, rows: Tensor | slice) -> Tensor:
        t = t.to(x.device)
        with arithmetic(dtype, run.device):
            if weight and kinds is not None and torch.is_grad_enabled():
                y: Tensor
                y, named = network(x, mu, t, named=True)
                logits.append(named)
                return y
            return network(x, mu, t, *(feature[rows] for feature in features)) if takes_mu else network(x, t)

    loss, prediction = run.objective(predict, x0, mu, batch.t, batch.noise, batch.prior, batch.asked)
    if weight and kinds is not None:
        loss = loss + weight * nn.functional.cross_entropy(logits[0].float(), kinds)
    return loss, prediction


def step(run: Run, learner: "Learner", batch: Batch, process: Process) -> float:
    """One step on this process's share of the batch; returns the mean loss of all processes."""
    train, k = run.options.train, learner.done
    for group in learner.optimiser.param_groups:
        group["lr"] = learning_rate(train, k)
    learner.optimiser.zero_grad(set_to_none=True)
    parts, total = train.accumulate, 0.0
    size = len(batch) // parts
    for i in range(parts):
        part = batch.part(slice(i * size, (i + 1) * size))
        # Processes exchange gradients once, with the last part.
        alone = isinstance(learner.network, DistributedDataParallel) and i < parts - 1
        with learner.network.no_sync() if alone else nullcontext():  # type: ignore[operator]
            loss, prediction = batch_loss(run, learner.network, part)
            value = float(loss.detach())
            mean = mean_of(process, value, run.device)
            if not math.isfinite(mean):  # in any of the processes: all stop, none waits for the others' gradients
                raise TrainingError(_not_finite(part, prediction, k) if not math.isfinite(value) else "")
            learner.scaler.scale(loss / parts).backward()  # type: ignore[no-untyped-call]
        total += mean / parts
    if train.clip_grad is not None:
        learner.scaler.unscale_(learner.optimiser)
        nn.utils.clip_grad_norm_(run.models.network.parameters(), train.clip_grad)
    learner.scaler.step(learner.optimiser)
    learner.scaler.update()
    update_ema(run.models.ema, run.models.network, k)
    learner.done += 1
    return total


def mean_of(process: Process, value: float, device: torch.device) -> float:
    """The mean of a number over all processes."""
    if process.world == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total) / process.world


def _not_finite(batch: Batch, prediction: Tensor, k: int) -> str:
    bad = (~torch.isfinite(prediction.detach()).flatten(1).all(1)).nonzero().flatten().tolist() or range(len(batch))
    names = ", ".join(f"{batch.names[i]} (t = {int(batch.t[i])})" for i in bad)
    return f"step {k + 1}: the loss is not finite; images: {names}"


# ---- the loop


@dataclass
class Learner:
    """What changes with every step, besides the weights."""

    network: nn.Module  # the one that learns, or what stands for it among several processes
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    done: int = 0  # steps

    def state(self) -> dict[str, Any]:
        """For a training state."""
        return {"optimizer": self.optimiser.state_dict(), "scaler": self.scaler.state_dict()}


def make_learner(run: Run, process: Process) -> Learner:
    """An optimiser at the first step, or where the newest training state is."""
    models, train = run.models, run.options.train
    dtype = resolve_precision(run.options.precision, run.device)
    optimiser = make_optimiser(train, models.network.parameters(), dtype if dtype is torch.bfloat16 else None)
    half = dtype is torch.float16
    learner = Learner(models.network, optimiser, torch.amp.GradScaler(run.device.type, enabled=half))
    try:
        state = states.newest(run.folder)
        if state is None and run.options.path.resume_state is not None:
            state = states.read(locate(run.options.path.resume_state))
    except states.StateError as error:
        raise OptionsError(str(error)) from error
    if state is not None:
        try:
            models.network.load_state_dict(state["network"])
            models.ema.load_state_dict(state["ema"])
            optimiser.load_state_dict(state["optimizer"])
            learner.scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise OptionsError(f"{run.folder}: the training state does not fit the options: {reason}") from error
        learner.done = int(state["iter"])
        if process.is_main:
            log.info("going on after step %d", learner.done)
    if process.world > 1:
        # Of parameters of 1x1 pixels, whose strides mean nothing.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        learner.network = DistributedDataParallel(
            models.network, [run.device] if run.device.type == "cuda" else None, forward_sync_buffers=False
        )
    return learner


def train(run: Run, process: Process) -> int:
    """Train until the last step; returns the exit code: 0, 1 for a failure, 130 where it was interrupted."""
    options, train = run.options, run.options.train
    learner = make_learner(run, process)
    journal = Journal(run.folder, learner.done, options.use_tb_logger) if process.is_main else None
    workers = options.datasets["train"].n_workers
    saved = learner.done

    def save() -> None:
        nonlocal saved
        if process.is_main and saved != learner.done:
            states.save(run.folder, learner.done, run.models.network, run.models.ema, learner.state(), run.metadata)
        saved = learner.done

    with (
        stop_on_signal() as stop,
        tqdm(total=train.niter, initial=learner.done, unit="step", disable=None if process.is_main else True) as bar,
        closing(batches(run.data, learner.done, train.niter, process.rank, process.world, workers)) as source,
    ):
        meter = Meter(run.data.batch)
        try:
            for batch in source:
                meter.add(step(run, learner, batch, process))
                bar.update()
                if learner.done % options.logger.print_freq == 0 or learner.done == train.niter:
                    line = meter.take()
                    bar.set_postfix_str(f"loss {line['loss']:.4f}, {line['images/s']:.1f} images/s")
                    if journal is not None:
                        journal.add(learner.done, {**line, "lr": learning_rate(train, learner.done - 1)})
                if learner.done % options.logger.save_checkpoint_freq == 0 or learner.done == train.niter:
                    save()
                if learner.done % train.val_freq == 0 or learner.done == train.niter:
                    validate(run, learner.done, journal)
                    process.barrier()
                    meter.restart()
                if mean_of(process, float(stop.is_set()), run.device) > 0:  # all stop after the same step
                    save()
                    return 130
        except RuntimeError as error:
            # A signal to all processes ends those that read ahead; this one was waiting for them, between two steps.
            if not stop.is_set() or "DataLoader worker" not in str(error):
                raise
            save()
            return 130
        except DataError as error:
            tqdm.write(str(error), file=sys.stderr)
            save()  # the steps before are good
            return 1
        except (TrainingError, states.StateError) as error:
            if str(error):
                tqdm.write(str(error), file=sys.stderr)
            return 1
        except OSError as error:
            text = f"{error.filename or run.folder}: cannot be written: {error.strerror or error}"
            tqdm.write(text, file=sys.stderr)
            return 1
        finally:
            if journal is not None:
                journal.close()
    return 0


def validate(run: Run, done: int, journal: Journal | None) -> None:
    """Restore the validation images, in the main process; logs scores and draws a sheet."""
    if run.validation is None or journal is None:
        return
    start = time.perf_counter()
    scores = run.validation(run.restorer, run.folder / "validation" / f"{done}.png")
    journal.add(done, {"validation": scores, "seconds": round(time.perf_counter() - start, 1)})
