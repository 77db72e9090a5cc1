"""Measure speed and memory, as ratios within one run. Prints tables, or JSON with --json."""

import argparse
import json
import sys
from typing import Any

from launcher import start

SUBJECTS = {
    "--solvers": "arithmetic of one sampling step, without a network",
    "--orders": "a network at 256x256, fresh and after other sizes",
    "--limit": "share of the machine's limit that networks reach, memory, the published graph",
    "--pipeline": "share of an evaluation that is not the network's",
    "--exports": "restoration by torch, ONNX Runtime and OpenVINO",
    "--large": "restore.py on images of 0.25 to 12 megapixels",
    "--folder": "restore.py on 50 photos, with one and several processes",
    "--start": "from start to end: the help, and one small photo",
    "--beside": "programs beside one that uses a core all the time",
}


def main(argv: list[str] | None = None) -> int:
    """Run the chosen benchmarks and print them."""
    import torch
    from benchmarks import limit, networks, programs
    from benchmarks.subjects import MEASURES

    from codes.runtime import processor

    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    for option, text in SUBJECTS.items():
        add(option, action="store_true", help=text)
    add("--sizes", type=int, nargs="+", help="image sides (default: 128 256, for --limit 128 256 512 1024)")
    add("--clock", choices=list(limit.CLOCKS), default="processor",
        help="of --limit; processor: one thread, its own time, for a busy machine; wall: all threads, for an idle one "
        "(default: processor)")  # fmt: skip
    add("--markdown", action="store_true", help="print the table of --limit in Markdown")
    add("--megapixels", type=float, nargs="+", default=list(programs.MEGAPIXELS), help="sizes of --large")
    add("--photos", type=int, default=50, help="photos of --folder (default: 50)")
    add("--only", nargs="*", choices=list(networks.NETWORKS), default=["daclip-unet", "refusion-nafnet"],
        help="networks (default: daclip-unet refusion-nafnet)")  # fmt: skip
    add("--weights", default="pretrained/mr-universal.safetensors", metavar="FILE",
        help="network of --exports, and of --limit and --orders besides these")  # fmt: skip
    add("--repeats", type=int, default=5, help="timed evaluations of a network (default: 5)")
    add("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(argv)
    chosen = [subject for subject in MEASURES if getattr(options, subject)]
    if not chosen:
        parser.error(f"nothing to do: name a benchmark, {', '.join(SUBJECTS)}")
    machine = {"processor": processor.described(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    results: dict[str, Any] = dict(machine)
    for subject in chosen:
        results[subject], shown = MEASURES[subject](options, machine)
        if not options.json:
            print(shown)
    if options.json:
        print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(start(main))
