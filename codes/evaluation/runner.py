"""One evaluation from options to summary: what test.py does, also for programs that do several in a row."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ..config import Options
from ..metrics import Scorer
from ..restoration.restorer import ImageRestorer
from ..runtime.distributed import Process
from . import session
from .run import Job, Outcome, Task, run, together
from .summary import score_again, summarise


@dataclass(frozen=True)
class Finished:
    """How an evaluation ended; the table is the main process's."""

    job: Job
    outcome: Outcome
    table: str = ""


def evaluate(
    options: Options,
    tasks: Sequence[Task],
    restorer: ImageRestorer,
    scorer: Scorer,
    notes: Sequence[str],
    process: Process,
    fresh: bool = False,
    score_only: bool = False,
) -> Finished:
    """Prepare the run's folder, restore and score what is missing there, and write the summary.

    Every process calls this. `notes` go into the summary.
    """
    device = restorer.device
    job = session.make_job(options, tasks, restorer, session.open_folder(options, fresh, device, process))
    if score_only:
        outcome = Outcome({task.name: list(task.problems) for task in job.tasks})
        score_again(job, scorer)
    else:
        outcome = run(job, restorer, scorer, process, device)
    outcome = together(process.gather(outcome))
    if not process.is_main:
        return Finished(job, outcome)
    if outcome.failure:  # first, because what follows may fail for the same reason
        print(outcome.failure, file=sys.stderr)
    names, sheets = options.metrics.names, options.contact_sheet
    return Finished(job, outcome, summarise(job, scorer, names, outcome.problems, notes, device, sheets))
