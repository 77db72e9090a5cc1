"""The training loop: steps, logging, checkpoints, validation."""

import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from ..config import OptionsError
from ..data.pairs import DataError
from ..networks.predictor import arithmetic
from ..runtime.distributed import Process
from ..runtime.paths import locate
from ..runtime.problems import explain
from ..runtime.signals import stop_on_signal
from . import checkpoints
from .data import Batch
from .journal import Journal, Meter
from .loader import batches
from .optimisers import learning_rate, make_optimiser, update_ema
from .setup import Models, Run

log = logging.getLogger(__name__)


class TrainingError(Exception):
    """Stops a training; the message names the step and the images."""


@dataclass(kw_only=True)
class Learner:
    """Everything that changes with a step, besides the weights."""

    network: nn.Module  # the network, or its DDP wrapper
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    done: int = 0  # steps
    saved: int = 0  # steps in the newest checkpoint

    def state(self) -> dict[str, Any]:
        """The part of a training state besides the weights."""
        return {"optimizer": self.optimiser.state_dict(), "scaler": self.scaler.state_dict()}


# ---- one step


def contexts(models: Models, batch: Batch) -> tuple[Tensor | None, ...]:
    """DA-CLIP's features of the degraded patches, in the order of the networks' arguments; empty without DA-CLIP.

    None for one that the network does not take.
    """
    if models.daclip is None or batch.clip is None:
        return ()
    with torch.no_grad():
        features = models.daclip.controlled(batch.clip)
    found = {"takes_text_context": features.degradation, "takes_image_context": features.image}
    return tuple(feature.float() if getattr(models.network, name, True) else None for name, feature in found.items())


def batch_loss(run: Run, network: Callable[..., Any], batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss of some samples, and the network's prediction for them."""
    models = run.models
    batch = batch.to(run.device)
    mu, x0 = batch.lq, batch.gt
    weight, kinds = run.options.train.recognition_weight, batch.kinds
    if not run.options.train.weight and kinds is not None:
        with arithmetic(run.dtype, run.device):
            logits = network(None, mu, batch.t)
        return weight * nn.functional.cross_entropy(logits.float(), kinds), logits
    if models.latent is not None:
        with torch.no_grad():
            mu, x0 = models.latent.encode(mu)[0], models.latent.encode(x0)[0]
    features = contexts(models, batch)
    takes_mu = getattr(models.network, "takes_mu", True)

    def evaluate(network: Callable[..., Any], x: Tensor, mu: Tensor, t: Tensor, rows: Tensor | slice) -> Tensor:
        y: Tensor
        with arithmetic(run.dtype, run.device):
            inputs = (mu, t.to(x.device), *(None if one is None else one[rows] for one in features))
            y = network(x, *inputs) if takes_mu else network(x, t.to(x.device))
        return y

    recognised: list[Tensor] = []  # by the only call with gradients

    def predict(x: Tensor, mu: Tensor, t: Tensor, rows: Tensor | slice) -> Tensor:
        if not (weight and kinds is not None and torch.is_grad_enabled()):
            return evaluate(network, x, mu, t, rows)
        y: Tensor
        with arithmetic(run.dtype, run.device):
            y, logits = network(x, mu, t.to(x.device), named=True)
        recognised.append(logits)
        return y

    loss, prediction = run.objective(
        predict, x0, mu, t=batch.t, noise=batch.noise, from_prior=batch.from_prior, query_time=batch.query_time
    )
    if weight and kinds is not None:
        loss = loss + weight * nn.functional.cross_entropy(recognised[0].float(), kinds)
    if run.distillation is not None:
        teacher, student = partial(evaluate, run.distillation.teacher), partial(evaluate, network)
        loss = loss + run.distillation(teacher, student, mu, batch.noise, batch.lots)
    return loss, prediction


def step(run: Run, learner: Learner, batch: Batch, process: Process) -> float:
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
            if not math.isfinite(mean):  # in any process: all stop, none waits for the others' gradients
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


# ---- all steps


def make_learner(run: Run, process: Process) -> Learner:
    """An optimiser at the first step, or with the newest training state."""
    models, train = run.models, run.options.train
    optimiser = make_optimiser(train, models.network.parameters(), run.dtype if run.dtype is torch.bfloat16 else None)
    half = run.dtype is torch.float16
    scaler = torch.amp.GradScaler(run.device.type, enabled=half)
    learner = Learner(network=models.network, optimiser=optimiser, scaler=scaler)
    try:
        state = checkpoints.newest(run.folder, tidy=process.is_main)
        if state is None and run.options.path.resume_state is not None:
            state = checkpoints.read(locate(run.options.path.resume_state))
    except checkpoints.StateError as error:
        raise OptionsError(str(error)) from error
    if state is not None:
        try:
            models.network.load_state_dict(state["network"])
            models.ema.load_state_dict(state["ema"])
            optimiser.load_state_dict(state["optimizer"])
            scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            reason = " ".join(str(error).split())
            raise OptionsError(f"{run.folder}: the training state does not fit the options: {reason}") from error
        learner.done = learner.saved = int(state["iter"])
        if process.is_main:
            log.info("resuming after step %d", learner.done)
    if process.world > 1:
        # Parameters of 1x1 convolutions trigger it: their strides are ambiguous.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        learner.network = DistributedDataParallel(
            models.network,
            [run.device] if run.device.type == "cuda" else None,
            forward_sync_buffers=False,
            find_unused_parameters=not train.weight,
        )
    return learner


def train(run: Run, process: Process) -> int:
    """Train until the last step; returns the exit code: 0, 1 after a failure, 130 after an interruption."""
    learner = make_learner(run, process)
    journal: Journal | None = None
    try:
        if process.is_main:
            if learner.done:
                models = run.models
                checkpoints.mend_weights(run.folder, learner.done, models.network, models.ema, run.metadata)
            journal = Journal(run.folder, learner.done, run.options.use_tb_logger)
            if learner.done and _validates(run, learner.done) and learner.done not in journal.validated:
                validate(run, learner.done, journal)  # the run ended between the checkpoint and its validation
        process.barrier()
        with stop_on_signal() as stop:
            return _train_or_save(run, learner, process, journal, stop)
    except (DataError, TrainingError, checkpoints.StateError) as error:
        problem = str(error)
    except OSError as error:
        problem = explain(error, run.folder)
    finally:
        if journal is not None:
            journal.close()
    if problem:
        tqdm.write(problem, file=sys.stderr)
    return 1


def _train_or_save(run: Run, learner: Learner, process: Process, journal: Journal | None, stop: threading.Event) -> int:
    """All steps; if it ends before the last one for want of data, the steps so far are saved."""
    try:
        return _train(run, learner, process, journal, stop)
    except RuntimeError as error:
        # Ctrl-C also kills the DataLoader workers; treat their loss as the interruption it is.
        if not stop.is_set() or "DataLoader worker" not in str(error):
            raise
        save(run, learner, process)
        return 130
    except DataError:
        save(run, learner, process)
        raise


def _train(run: Run, learner: Learner, process: Process, journal: Journal | None, stop: threading.Event) -> int:
    train, logger, workers = run.options.train, run.options.logger, run.options.datasets["train"].n_workers
    source = batches(
        run.data,
        learner.done,
        train.niter,
        rank=process.rank,
        world=process.world,
        workers=workers,
        pin=run.device.type == "cuda",
    )
    shown = None if process.is_main else True
    with (
        tqdm(total=train.niter, initial=learner.done, unit="step", disable=shown) as bar,
        closing(source),
    ):
        meter = Meter(run.data.batch)
        for batch in source:
            meter.add(step(run, learner, batch, process))
            bar.update()
            last = learner.done == train.niter
            if last or learner.done % logger.print_freq == 0:
                line = meter.take()
                bar.set_postfix_str(f"loss {line['loss']:.4f}, {line['images/s']:.1f} images/s")
                if journal is not None:
                    journal.add(learner.done, {**line, "lr": learning_rate(train, learner.done - 1)})
            if last or learner.done % logger.save_checkpoint_freq == 0:
                save(run, learner, process)
            if _validates(run, learner.done):
                validate(run, learner.done, journal)
                process.barrier()
                meter.restart()
            if mean_of(process, float(stop.is_set()), run.device) > 0:  # all stop after the same step
                save(run, learner, process)
                return 130
    return 0


def _validates(run: Run, done: int) -> bool:
    return done == run.options.train.niter or done % run.options.train.val_freq == 0


def save(run: Run, learner: Learner, process: Process) -> None:
    """Write a checkpoint, in the main process, unless this step's exists."""
    if process.is_main and learner.saved != learner.done:
        checkpoints.save(
            run.folder,
            learner.done,
            network=run.models.network,
            ema=run.models.ema,
            rest=learner.state(),
            metadata=run.metadata,
        )
    learner.saved = learner.done


def validate(run: Run, done: int, journal: Journal | None) -> None:
    """Restore the validation images, in the main process; logs scores and draws a sheet."""
    if run.validation is None or journal is None:
        return
    start = time.perf_counter()
    scores = run.validation(run.restorer, run.folder / "validation" / f"{done}.png")
    journal.add(done, {"validation": scores, "seconds": round(time.perf_counter() - start, 1)})
