"""Runs the stages of a training one after the other; a file without stages is a training of one."""

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch
import yaml

from ..config import Options, difference, resolved
from ..config.stages import folder_of, in_stage, in_stages, last_weights
from ..evaluation.folder import open_folder, prepare_folder
from ..runtime.device import choose_device
from ..runtime.distributed import Process, processes
from ..runtime.files import remove_leftovers
from ..runtime.locks import claim
from . import checkpoints
from .loop import train
from .setup import Inputs, find_inputs, load_models, make_run

log = logging.getLogger(__name__)

Stages = Sequence[Options]


def run(stages: Stages, *, fresh: bool = False) -> int:
    """Train all stages that are not finished; returns the exit code of `train`.

    fresh: in a new, numbered folder.
    """
    inputs = find_all(stages)
    device = choose_device(stages[0].device)
    with processes(device) as process:
        if fresh and len(stages) > 1:
            stages, fresh = _renumbered(stages, process), False
        if process.is_main:
            for line in dict.fromkeys(line for stage in stages for line in (*stage.notes, *stage.ignored)):
                log.info(line)
        for stage, found in zip(stages, inputs, strict=True):
            with in_stage(_title(stages, stage)):
                if len(stages) > 1 and _is_finished(stage, process):
                    continue
                folder = open_folder(stage, fresh, device, process)
                with _alone(folder, process):
                    code = train(make_run(stage, found, folder, device, process), process)
            if code:
                return code
            if stage is not stages[-1]:
                gc.collect()  # the DDP wrapper, which is part of a reference cycle, and its network
    return 0


@contextmanager
def _alone(folder: Path, process: Process) -> Iterator[None]:
    """Wait until no other training works in the folder, and remove what killed ones left there."""
    with claim(folder, wait=None) if process.is_main else nullcontext():
        if process.is_main:
            remove_leftovers(folder)
        process.barrier()
        yield


def describe(stages: Stages) -> str:
    """What a training would do: the options in force, data, network; of later stages the options that change."""
    lines: list[str] = []
    before: Options | None = None
    for stage, found in zip(stages, find_all(stages), strict=True):
        if len(stages) > 1:
            lines += [*([""] if before else []), f"stage {stage.run_name}"]
        if before is None:
            lines += [yaml.safe_dump(resolved(stage), sort_keys=False, allow_unicode=True).rstrip(), ""]
        else:
            lines += [f"  {change}" for change in difference(resolved(before), resolved(stage))]
        lines += [*stage.notes, *(f"ignored: {line}" for line in stage.ignored)]
        lines += [f"train on {task.name}: {len(task.items)} images" for task in found.data.tasks]
        lines += [f"validate on {task.name}: {len(task.items)} images" for task in found.validation]
        lines.append(f"{_network(stage, before)}; {stage.train.niter} steps into {folder_of(stage)}")
        before = stage
    return "\n".join(lines)


def find_all(stages: Stages) -> list[Inputs]:
    """The inputs of all stages, so that what is missing for a late one is reported before the first begins."""

    def find(i: int) -> Inputs:
        follows = i > 0 and _follows(stages[i], stages[i - 1])
        return find_inputs(stages[i], later=("pretrain_model_G",) if follows else ())

    return in_stages({_title(stages, stage): partial(find, i) for i, stage in enumerate(stages)})


def _network(stage: Options, before: Options | None) -> str:
    if before is not None and _follows(stage, before):
        return f"network: averaged weights of stage {before.run_name}"
    network = load_models(stage, torch.device("cpu")).network
    return f"network: {sum(parameter.numel() for parameter in network.parameters()):,} parameters"


def _follows(stage: Options, before: Options) -> bool:
    """Whether a stage begins with the weights of the one before it, and not with others that it names."""
    return stage.path.pretrain_model_G == str(last_weights(before))


def _title(stages: Stages, stage: Options) -> str:
    return stage.run_name if len(stages) > 1 else ""


def _is_finished(stage: Options, process: Process) -> bool:
    """Whether a stage has its last weights, undamaged; raises OptionsError if they were made with other options."""
    weights = last_weights(stage)
    finished = weights.is_file() and not checkpoints.is_damaged(weights)
    if finished:
        prepare_folder(stage, False)
    if process.is_main:
        log.info("stage %s: %s", stage.run_name, "finished before" if finished else f"{stage.train.niter} steps")
    return finished


def _renumbered(stages: Stages, process: Process) -> Stages:
    """The same stages in the first free folder NAME, NAME-2, NAME-3, ..., as the main process finds it."""
    first = Path(stages[0].results)
    number, free = 1, first
    while free.exists():
        number += 1
        free = first.with_name(f"{first.name}-{number}")
    folder = process.gather(str(free))[0]
    moved: list[Options] = []
    for i, stage in enumerate(stages):
        path = stage.path
        if i and _follows(stage, stages[i - 1]):
            path = path.model_copy(update={"pretrain_model_G": str(last_weights(moved[-1]))})
        moved.append(stage.model_copy(update={"results": folder, "path": path}))
    return moved
