"""Compare our network with what a user could take instead: quality, and seconds of processor time per megapixel.

Peers are installed into a cache, each into an environment of its own; none is a dependency. Started again, it goes on
where it stopped. With --document it writes the page, and a JSON file beside it with the numbers.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import start
from peer_parts import IMAGES, SIZE

if TYPE_CHECKING:
    from peer_parts.images import Case
    from peer_parts.rows import Peer

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
Scores = dict[str, dict[str, dict[str, float]]]  # by title and image


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    from platformdirs import user_cache_path

    from codes.defaults import WEIGHTS

    cache = user_cache_path("mr-sampler", appauthor=False) / "peers"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--testsets", type=Path, metavar="FOLDER", help="folder of CBSD68, LIVE1, LOL-eval15 and Rain100H")
    add("--photos", type=Path, metavar="FOLDER", help="validation photographs, for blur and holes")
    add("--images", type=int, default=IMAGES, metavar="N", help="images of each set (default: %(default)s)")
    add("--size", type=int, default=SIZE, metavar="PIXELS", help="side of the crops (default: %(default)s)")
    add("--only", nargs="+", metavar="NAME", help="peers to run; ours always runs")
    add("--weights", default=WEIGHTS, metavar="FILE", help="our network (default: %(default)s)")
    add("--cache", type=Path, default=cache, metavar="FOLDER", help="where peers are installed (default: %(default)s)")
    add("-o", "--output", type=Path, default=Path("results/peers"), metavar="FOLDER",
        help="images and scores (default: %(default)s)")  # fmt: skip
    add("--document", type=Path, metavar="FILE", help="page to write, such as docs/peers.md")
    add("--dry-run", action="store_true", help="print the work and what would be installed, and stop")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing, print the tables; returns the exit code."""
    parser = build_parser()
    options = parser.parse_args(argv)
    from peer_parts import images, rows, table

    known = rows.peers(options.weights)
    unknown = set(options.only or ()) - {peer.name for peer in known}
    if unknown:
        parser.error(f"--only: no peer {', '.join(sorted(unknown))} (known: {', '.join(peer.name for peer in known)})")
    if options.images < 2 or options.size < 64:
        parser.error("--images must be at least 2, for a standard error, and --size at least 64")
    if options.document is not None and not options.document.parent.is_dir():
        parser.error(f"--document: no folder {options.document.parent}")
    data = options.output / f"{options.images}x{options.size}"
    cases, missing = images.cases(data, options.testsets, options.photos, options.images, options.size)
    for line in missing:
        print(line, file=sys.stderr)
    if not cases:
        return 2
    chosen = [peer for peer in known if not options.only or peer.name in options.only or peer.method == "ours"]
    print(f"{sum(map(len, cases.values()))} images; about {_minutes(chosen, cases, options.size):.0f} CPU minutes",
          flush=True)  # fmt: skip
    if options.dry_run:
        for peer in chosen:
            print(f"{peer.title}: {', '.join((*peer.installs, *filter(None, [peer.archive]))) or 'nothing to install'}")
        return 0
    scores, problems, commits = measure(chosen, cases, data, options.cache)
    results = {**summary(known, cases, scores, [*missing, *problems], options), "commit": ", ".join(commits)}
    for task, task_rows in table.from_json(results).items():
        print(f"\n{results['titles'][task]}\n{table.table(task_rows).rstrip()}")
        print(table.sentence(task_rows, results["ours"]))
    if options.document is not None:
        from codes.runtime.files import write_atomically

        write_atomically(options.document, table.page(results).encode())
        numbers = options.document.with_suffix(".json")
        write_atomically(numbers, (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode())
        print(f"wrote {options.document} and {numbers}")
    return 0


def _minutes(peers: Sequence["Peer"], cases: Mapping[str, Sequence["Case"]], size: int) -> float:
    """Estimated processor time, from seconds to load and seconds per megapixel that were measured once."""
    rates = {"maxim.py": (15.0, 40.0), "bm3d_colour.py": (2.0, 40.0), "migan.py": (2.0, 15.0)}
    seconds = 0.0
    for peer in peers:
        for task in peer.tasks:
            load, rate = rates.get(peer.method, (2.0, 4.0))
            seconds += (load + rate * len(cases[task]) * size**2 / 1e6) if task in cases else 0
    return seconds / 60


def measure(
    peers: Sequence["Peer"], cases: Mapping[str, Sequence["Case"]], data: Path, cache: Path
) -> tuple[dict[str, Scores], list[str], list[str]]:
    """Scores by task, title and image; a line for every peer that could not be had; the commits they were made at."""
    import torch
    from peer_parts.environments import Unavailable
    from peer_parts.table import INPUT

    from codes.data.images import read_image, to_uint8
    from codes.metrics import make_scorer
    from codes.runtime.environment import commit
    from codes.runtime.files import JsonLines, digest, read_json_lines

    scorer, notes = make_scorer(["psnr", "ssim", "lpips"], 0, torch.device("cpu"))
    if notes:
        raise SystemExit(notes[0])
    path = data / "scores.jsonl"
    known = {line["key"]: line for line in read_json_lines(path)} if path.is_file() else {}
    lines = JsonLines(path)
    now = (commit() or "unknown")[:12]
    commits = set()

    def scored(case: "Case", result: Path, key: str, seconds: float | None) -> dict[str, float]:
        pixels = to_uint8(read_image(result))
        found = dict(scorer(pixels, to_uint8(read_image(case.clean))))
        line = {"key": key, "commit": now, **found, "megapixels": pixels.shape[0] * pixels.shape[1] / 1e6}
        lines.append(line if seconds is None else {**line, "seconds": seconds})
        return {
            name: value for name, value in {**line, "seconds": seconds}.items() if name != "key" and value is not None
        }

    scores: dict[str, Scores] = {task: {} for task in cases}
    problems = []
    for task, every in cases.items():
        for case in every:
            key = f"{INPUT}/{task}/{case.name}/{digest(case.degraded)[:16]}"
            entry = _values(known[key]) if key in known else scored(case, case.degraded, key, None)
            scores[task].setdefault(INPUT, {})[case.name] = entry
    for peer in peers:
        try:
            for task in (task for task in peer.tasks if task in cases):
                made = digest(json.dumps([peer.installs, peer.sha256, _identity(peer.arguments(task))]).encode())[:16]
                keys = {
                    case: f"{peer.name}/{task}/{case.name}/{digest(case.degraded)[:16]}/{made}" for case in cases[task]
                }
                todo = [case for case in cases[task] if keys[case] not in known]
                folder = data / task / peer.name
                seconds = run_peer(peer, task, todo, folder, cache) if todo else {}
                for case in cases[task]:
                    result = folder / f"{case.name}.png"
                    values = (
                        scored(case, result, keys[case], seconds[case.name])
                        if case in todo
                        else _values(known[keys[case]])
                    )
                    scores[task].setdefault(peer.title, {})[case.name] = values
                    commits.add(now if case in todo else known[keys[case]]["commit"])
        except Unavailable as error:
            problems.append(f"{peer.title}: {error}")
            print(f"{peer.title}: left out: {error}", file=sys.stderr, flush=True)
            for found in scores.values():
                found.pop(peer.title, None)
    lines.close()
    return scores, problems, sorted(commits)


def _values(line: Mapping[str, Any]) -> dict[str, float]:
    return {name: line[name] for name in ("psnr", "ssim", "lpips", "seconds", "megapixels") if name in line}


def _identity(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with the content of weights in place of their name."""
    from codes.runtime.files import digest
    from codes.runtime.paths import locate

    return {key: digest(locate(value)) if key == "weights" else value for key, value in arguments.items()}


def run_peer(peer: "Peer", task: str, cases: Sequence["Case"], folder: Path, cache: Path) -> dict[str, float]:
    """Restore images with a peer into a folder; returns the seconds of each. Raises Unavailable."""
    from peer_parts.environments import Unavailable, files_of, last_line, python_of
    from peer_parts.own import METHODS
    from peer_parts.workers.harness import restored

    folder.mkdir(parents=True, exist_ok=True)
    items = [
        {
            "name": case.name,
            "input": str(case.degraded),
            "mask": str(case.holes) if case.holes else None,
            "output": str(folder / f"{case.name}.png"),
        }
        for case in cases
    ]
    python, files = python_of(peer, cache), files_of(peer, cache)
    print(f"{peer.title}: {task}, {len(items)} images", flush=True)
    if peer.method in METHODS:
        restore = METHODS[peer.method](files, peer.arguments(task))
        return {item["name"]: restored(restore, item) for item in items if item["name"]}
    job = folder / "job.json"
    job.write_text(json.dumps({"files": str(files), "options": peer.arguments(task), "items": items}))
    worker = Path(__file__).parent / "peer_parts" / "workers" / peer.method
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    try:
        result = subprocess.run([str(python), str(worker), str(job)], capture_output=True, text=True, env=environment)
    except OSError as error:
        raise Unavailable(f"{python}: {error.strerror}") from error
    if result.returncode:
        raise Unavailable(f"{worker.name} failed: {last_line(result.stderr)}")
    done = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line["seconds"] for line in done}


def summary(
    peers: Sequence["Peer"],
    cases: Mapping[str, Sequence["Case"]],
    scores: Mapping[str, Scores],
    missing: Sequence[str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """What the page shows."""
    from peer_parts import images, rows, table

    from codes.runtime.files import digest
    from codes.runtime.paths import locate

    ours = next(peer.title for peer in peers if peer.name == rows.OURS)
    notes = {peer.title: peer.note for peer in peers}
    tasks = {task: table.rows_of(found, notes, ours) for task, found in scores.items()}
    facts = {
        "images": options.images,
        "size": options.size,
        "ours": ours,
        "weights": options.weights,
        "sha256": digest(locate(options.weights))[:12],
        "titles": {each.task: each.title for each in images.SETS if each.task in cases},
        "missing": list(missing),
    }
    return table.to_json(tasks, facts)


if __name__ == "__main__":
    sys.exit(start(main, "platformdirs"))
