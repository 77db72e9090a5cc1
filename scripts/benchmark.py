"""Measure speed and memory, as ratios within one run. Prints tables, or JSON with --json."""

import argparse
import json
import sys
from typing import Any

from launcher import start


def main(argv: list[str] | None = None) -> int:
    """Run the chosen benchmarks and print them."""
    import torch
    from benchmarks import limit, networks, pipeline, programs, sizes, solvers

    from codes.runtime import processor

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solvers", action="store_true", help="arithmetic of one sampling step, without a network")
    parser.add_argument("--networks", action="store_true", help="evaluations of the published networks, full size")
    parser.add_argument("--precisions", action="store_true", help="DA-CLIP's U-Net in fp32, bf16 and fp16")
    parser.add_argument("--orders", action="store_true", help="a network at 256x256, fresh and after other sizes")
    parser.add_argument("--limit", action="store_true", help="share of the machine's limit that the networks reach")
    parser.add_argument("--pipeline", action="store_true", help="share of an evaluation that is not the network's")
    parser.add_argument("--exports", action="store_true", help="restoration by torch, ONNX Runtime and OpenVINO")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="image sides (default: 128 256, for --limit 128 256 512 1024)"
    )
    parser.add_argument(
        "--clock", choices=list(limit.CLOCKS), default="processor",
        help="of --limit; processor: one thread, its own time, for a busy machine; wall: all threads, for an idle one "
        "(default: processor)",
    )  # fmt: skip
    parser.add_argument("--markdown", action="store_true", help="print the table of --limit in Markdown")
    parser.add_argument("--large", action="store_true", help="restore.py on images of 0.25 to 12 megapixels")
    parser.add_argument("--folder", action="store_true", help="restore.py on 50 photos, with one and several processes")
    parser.add_argument("--start", action="store_true", help="from start to end: the help, and one small photo")
    parser.add_argument("--beside", action="store_true", help="programs beside one that uses a core all the time")
    parser.add_argument(
        "--megapixels", type=float, nargs="+", default=list(programs.MEGAPIXELS), help="sizes of --large"
    )
    parser.add_argument("--photos", type=int, default=50, help="photos of --folder (default: 50)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4], help="batch sizes (default: 1 4)")
    parser.add_argument(
        "--only", nargs="*", choices=list(networks.NETWORKS), default=["daclip-unet", "refusion-nafnet"],
        help="networks (default: daclip-unet refusion-nafnet)",
    )  # fmt: skip
    parser.add_argument(
        "--weights",
        default="pretrained/mr-universal.safetensors",
        metavar="FILE",
        help="network of --exports, and of --limit and --orders besides these",
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed evaluations of a network (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(argv)
    subjects = (
        "solvers",
        "networks",
        "precisions",
        "orders",
        "limit",
        "pipeline",
        "exports",
        "large",
        "folder",
        "start",
        "beside",
    )
    if not any(getattr(options, subject) for subject in subjects):
        parser.error(f"nothing to do: name a benchmark, {', '.join(f'--{subject}' for subject in subjects)}")
    threads = torch.get_num_threads()
    results: dict[str, Any] = {"processor": processor.described(), "threads": threads, "torch": torch.__version__}
    if options.solvers:
        results["solvers"] = seconds = solvers.run()
        if not options.json:
            print(f"one second-order step on 1x3x256x256, float32, {threads} threads, median:")
            for name, value in seconds.items():
                print(f"  {name:32}{1e6 * value:9.0f} us   {value / seconds['plan']:5.1f} x")
    if options.networks:
        results["networks"] = rows = networks.run(
            options.only, options.sizes or (128, 256), options.batches, options.repeats, threads
        )
        if not options.json:
            print(f"one evaluation, float32, {threads} threads, median of {options.repeats}:\n{networks.table(rows)}")
    if options.precisions:
        results["precisions"] = by_precision = networks.precisions()
        if not options.json:
            print(f"one evaluation of DA-CLIP's U-Net at 256x256, {threads} threads:")
            for name, outcome in by_precision.items():
                print(f"  {name}  {outcome if isinstance(outcome, str) else f'{outcome:.2f} s'}")
    if options.orders:
        results["orders"] = orders = sizes.run([*options.only, options.weights], repeats=options.repeats)
        if not options.json:
            print(f"one evaluation at 256x256, processor time of one thread, best of {options.repeats}:")
            for each in orders:
                ratios = "   ".join(f"{key} {value:.2f}" for key, value in each.items() if "/" in key)
                print(f"  {each['network']:16} {each['precision']} fresh {each['seconds']['fresh']:.3f} s   {ratios}")
    if options.limit:
        names = [*options.only, options.weights]
        results["limit"] = shares = limit.run(names, options.sizes or limit.SIZES, options.repeats, options.clock)
        if not options.json:
            where = f"On {processor.described()}, torch {torch.__version__}."
            print(f"{where} {limit.caption(options.clock, options.repeats)}\n")
            print(limit.table(shares, options.markdown))
    if options.pipeline:
        rows = [pipeline.measure(), pipeline.measure(options.weights, nfe=2, images=24)]
        results["pipeline"] = rows
        for row in rows if not options.json else ():
            print(
                f"{row['images']} images of {row['size']} pixels at NFE {row['nfe']} with {row['network']}: "
                f"{row['seconds']:.1f} s, of which {100 * row['other_share']:.1f} % is not the network"
            )
            print(*(f"note: {note}\n" for note in row["notes"]), sep="", end="")
    if options.exports:
        from benchmarks import exports  # needs onnx, onnxruntime and openvino

        results["exports"] = runs = exports.run(options.weights, options.sizes or (128, 256), repeats=options.repeats)
        if not options.json:
            print(f"one restoration on {processor.described()}, float32, processor time of one thread,")
            print(f"best of {options.repeats}:")
            print(exports.table(runs))
    if options.large:
        results["large"] = large = programs.large(options.megapixels)
        if not options.json:
            print(f"restore.py with its default settings, {threads} threads:\n{programs.large_table(large)}")
    if options.folder:
        results["folder"] = many = programs.folder(options.photos)
        if not options.json:
            text = ", ".join(f"{key} {value:.1f} s" for key, value in many["seconds"].items())
            print(f"{many['photos']} photos by --workers: {text}: {many['throughput']:.2f} times as many per second")
            print(f"  {many['equal_files']} of {many['photos']} files are equal bit by bit")
    if options.start:
        results["start"] = first = programs.start(options.repeats)
        for name, took in first.items() if not options.json else ():
            print(f"  {name:10}{took['seconds']:6.2f} s, processor {took['processor_seconds']:.2f} s")
    if options.beside:
        results["beside"] = pairs = programs.beside()
        for name, each in pairs.items() if not options.json else ():
            print(f"  {name:10} alone {each['alone']:.1f} s, beside a busy process {each['ratio']:.2f} times as long")
    if options.json:
        print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(start(main))
