"""The numbers in README and documentation that come from results: blocks between two comments, which a command renews.

    <!-- results: NAME -->
    text
    <!-- end of results -->

A test renders every block again from the committed results, so that no number outlives them.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..evaluation.tables import commit_list, markdown
from ..names import TASKS, OptionsError
from .catalogue import PAPER_NFES, RECOMMENDED, TABLE_OF_TASK
from .claims import CLAIMS, Claim
from .findings import COLUMNS
from .published import published
from .render import MISSING
from .results import Results
from .testsets import TEST_SETS

_BLOCK = re.compile(r"<!-- results: ([\w-]+) -->\n.*?<!-- end of results -->", re.DOTALL)
_WHOLE = "the paper's own test images"
REPORT = "results/embedded/REPORT.md"  # from docs/, where the links are


def _anchor(heading: str) -> str:
    """
    >>> _anchor("Ablation: ODE against SDE")
    'ablation-ode-against-sde'
    """
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


def _link(claim: Claim) -> str:
    return f"[{claim.rests}]({REPORT}#{_anchor(claim.rests)})"


def _claims(results: Results) -> str:
    rows = []
    for claim in CLAIMS:
        status = "supported (tests)" if claim.measure is None else claim.measure(results).status
        rests = "tests, named below" if claim.measure is None else f"report, {_link(claim)}"
        rows.append([str(claim.number), claim.text, claim.verdict, status, rests])
    return markdown(["", "claim", "verdict", "our verdict is", "rests on"], rows, "lllll").rstrip("\n")


def _claim(number: int, results: Results) -> str:
    claim = next(each for each in CLAIMS if each.number == number)
    assert claim.measure is not None
    found = claim.measure(results)
    return f"- **network** ({_link(claim)}; {claim.rule}): {found.text} **{found.status.capitalize()}.**"


def _run(results: Results) -> str:
    """What the results are of."""
    settings = results.settings
    sets = [f"{each['folder']} ({each['images']})" for each in settings.get("sets", {}).values()]
    crops = f", crops of {settings['set_size']} pixels" if settings.get("set_size") else ""
    images = f"the paper's own images of {', '.join(sets)}{crops}; for the other tasks " if sets else ""
    return (
        f"Measured with `{settings.get('weights')}` (sha256 `{str(settings.get('sha256'))[:12]}`) on {images}"
        f"{settings.get('images')} photographs each; with more than 20 evaluations at most {settings.get('subset')} "
        f"images of a task. Commit {_commits(results)}."
    )


def _four_sets(results: Results) -> str:
    """The four test sets in one sentence: degraded, restored with the recommended evaluations, and the paper."""
    results = results.full or results
    nfe = results.settings.get("recommended_nfe", 1)
    psnr, texts = COLUMNS["psnr"], []
    whole = _which(results) == _WHOLE  # else the paper's numbers are of other images
    for task, known in TEST_SETS.items():
        cell = results.cell(task, RECOMMENDED, nfe)
        before = next((each.estimate("psnr") for each in results.inputs if each.task == task), None)
        after = None if cell is None or results.test_set(task) is None else cell.estimate("psnr")
        if after is None or before is None:
            continue
        paper = published()[TABLE_OF_TASK[task]].values("MR Sampler-1", 5)["psnr"]
        theirs = f" (paper {paper:g})" if whole else ""
        texts.append(f"{known.folder} ({task}) from {psnr.text(before.mean)} to {after.text(psnr.digits, '')}{theirs}")
    if not texts:
        return "The paper's test sets have not been run."
    evaluations = "one evaluation" if nfe == 1 else f"{nfe} evaluations"
    takes = "takes" if nfe == 1 else "take"
    theirs = "The paper's numbers are of DA-CLIP's network, six times larger, with MR Sampler-1 and 5 evaluations. "
    return (
        f"On {_which(results)}, {evaluations} of the small network {takes} {', '.join(texts)}: means of the PSNR in dB "
        f"with one standard error. {theirs if whole else ''}([Report](docs/{REPORT}), commit {_commits(results)}.)"
    )


def _commits(results: Results) -> str:
    """The commits that the results were computed at."""
    return commit_list(results.environment.get("commit", []))


def _which(results: Results) -> str:
    """The paper's test images, or how few and how small parts of them."""
    counts = {task: found["images"] for task in TEST_SETS if (found := results.test_set(task)) is not None}
    fewer = {count for task, count in counts.items() if count < TEST_SETS[task].images}
    size = results.settings.get("set_size")
    crops = f"crops of {size}x{size} pixels of " if size else ""
    numbers = " to ".join(map(str, sorted({min(counts.values()), max(counts.values())}))) if counts else ""
    return f"{crops}{f'{numbers} of each set of ' if fewer else ''}{_WHOLE}"


def _card(results: Results) -> str:
    """What the network does on every task that was run, with the recommended and with eight evaluations."""
    nfe = results.settings.get("recommended_nfe", 1)
    nfes = list(dict.fromkeys((nfe, PAPER_NFES[-1])))
    columns = [COLUMNS["psnr"], COLUMNS["lpips"]]
    rows = []
    for task in TASKS:
        whole = results.full if results.full is not None and results.test_set(task) else results
        before = next((cell for cell in whole.inputs if cell.task == task), None)
        cells = [whole.cell(task, RECOMMENDED, each) for each in nfes]
        if before is None or None in cells:
            continue
        known = results.test_set(task)
        row = [task, "photographs" if known is None else str(known["folder"]), str(before.images)]
        for column in columns:
            row.append(column.text(before.value(column.name), MISSING))
            found = [None if cell is None else cell.estimate(column.name) for cell in cells]
            row += [MISSING if each is None else each.text(column.digits, "") for each in found]
        rows.append(row)
    if not rows:
        return "Not measured yet."
    names = ["degraded", *(f"{each} evaluation{'s' * (each > 1)}" for each in nfes)]
    header = ["task", "images of", "images", *(f"{column.label} {name}" for column in columns for name in names)]
    size = results.settings.get("size" if results.full is not None else "set_size")
    of = "photograph the middle" if results.full is not None else "image the middle"
    crops = f" Of each {of} {size} pixels." if size else ""
    return f"{markdown(header, rows, 'llr')}\n± is one standard error.{crops} Commit {_commits(results)}."


BLOCKS: dict[str, Callable[[Results], str]] = {
    "claims": _claims,
    **{f"claim-{claim.number}": partial(_claim, claim.number) for claim in CLAIMS if claim.measure is not None},
    "run": _run,
    "four-sets": _four_sets,
    "card": _card,
}


def blocks(text: str) -> list[str]:
    """The names of the blocks of a document."""
    return _BLOCK.findall(text)


def filled(text: str, results: Results) -> str:
    """A document with its blocks renewed; raises KeyError for a name that is not in BLOCKS."""

    def renewed(match: re.Match[str]) -> str:
        return f"<!-- results: {match[1]} -->\n{BLOCKS[match[1]](results)}\n<!-- end of results -->"

    return _BLOCK.sub(renewed, text)


def fill(path: Path, results: Results) -> None:
    """Renew the blocks of a file; raises OptionsError if it has none, or unknown ones."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionsError(f"{path}: {error.strerror}") from None
    names = blocks(text)
    wrong = [name for name in names if name not in BLOCKS]
    if not names or wrong:
        what = f"unknown block {wrong[0]!r}" if wrong else "no block '<!-- results: NAME -->'"
        raise OptionsError(f"{path}: {what}; expected some of {', '.join(BLOCKS)}")
    path.write_text(filled(text, results), encoding="utf-8")
