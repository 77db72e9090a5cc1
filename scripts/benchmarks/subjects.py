"""What can be measured: by name the function that does it and writes it as text."""

import argparse
from collections.abc import Callable
from typing import Any

from . import exports, limit, pipeline, programs, sizes, solvers

Found = tuple[Any, str]  # the numbers for JSON, and the same as text


def _solvers(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    seconds = solvers.run()
    lines = [f"one second-order step on 1x3x256x256, float32, {machine['threads']} threads, median:"]
    lines += [f"  {name:32}{1e6 * value:9.0f} us   {value / seconds['plan']:5.1f} x" for name, value in seconds.items()]
    return seconds, "\n".join(lines)


def _orders(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    rows = sizes.run([*options.only, options.weights], repeats=options.repeats)
    lines = [f"one evaluation at 256x256, processor time of one thread, best of {options.repeats}:"]
    for row in rows:
        ratios = "   ".join(f"{key} {value:.2f}" for key, value in row.items() if "/" in key)
        lines.append(f"  {row['network']:16} {row['precision']} fresh {row['seconds']['fresh']:.3f} s   {ratios}")
    return rows, "\n".join(lines)


def _limit(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    names = [*options.only, options.weights]
    rows = limit.run(names, options.sizes or limit.SIZES, options.repeats, options.clock)
    where = f"On {machine['processor']}, torch {machine['torch']}. {limit.caption(options.clock, options.repeats)}"
    return rows, f"{where}\n\n{limit.table(rows, options.markdown)}"


def _pipeline(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    rows = [pipeline.measure(), pipeline.measure(options.weights, nfe=2, images=24)]
    lines = []
    for row in rows:
        lines.append(
            f"{row['images']} images of {row['size']} pixels at NFE {row['nfe']} with {row['network']}: "
            f"{row['seconds']:.1f} s, of which {100 * row['other_share']:.1f} % is not the network"
        )
        lines += [f"note: {note}" for note in row["notes"]]
    return rows, "\n".join(lines)


def _exports(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    rows = exports.run(options.weights, options.sizes or (128, 256), repeats=options.repeats)
    where = f"one restoration on {machine['processor']}, float32, processor time of one thread,"
    return rows, f"{where}\nbest of {options.repeats}:\n{exports.table(rows)}"


def _large(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    found = programs.large(options.megapixels)
    return found, f"restore.py with its default settings, {machine['threads']} threads:\n{programs.large_table(found)}"


def _folder(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    found = programs.folder(options.photos)
    text = ", ".join(f"{key} {value:.1f} s" for key, value in found["seconds"].items())
    return found, (
        f"{found['photos']} photos by --workers: {text}: {found['throughput']:.2f} times as many per second\n"
        f"  {found['equal_files']} of {found['photos']} files are equal bit by bit"
    )


def _start(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    found = programs.start(options.repeats)
    lines = [f"  {name:10}{t['seconds']:6.2f} s, processor {t['processor_seconds']:.2f} s" for name, t in found.items()]
    return found, "\n".join(lines)


def _beside(options: argparse.Namespace, machine: dict[str, Any]) -> Found:
    found = programs.beside()
    lines = [
        f"  {name:10} alone {each['alone']:.1f} s, beside a busy process {each['ratio']:.2f} times as long"
        for name, each in found.items()
    ]
    return found, "\n".join(lines)


MEASURES: dict[str, Callable[[argparse.Namespace, dict[str, Any]], Found]] = {
    "solvers": _solvers,
    "orders": _orders,
    "limit": _limit,
    "pipeline": _pipeline,
    "exports": _exports,
    "large": _large,
    "folder": _folder,
    "start": _start,
    "beside": _beside,
}
