"""The command lines of test.py, train.py and restore.py."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..config import Options, OptionsError, build_sde, build_solvers, load_options, options_for, resolved
from ..defaults import NFE
from ..runtime.paths import locate

_TEST = """\
Restore the images of some tasks with some solvers, score them and print a table.
Results go to results/<name>/: images, records, summary.{json,csv,md} and a contact sheet per task.
Started again with the same options it goes on where it stopped; several processes share
the work:  torchrun --nproc_per_node=2 test.py -opt options/test.yml"""

_EXIT = """\
exit code: 0 all images restored, 1 some left out or the run failed, 2 bad options or data, 130 interrupted.
All options are described in options/README.md."""

_TRAIN = """\
Train a restoration network. The run is written to results/<name>/: weights in models/, states to go on from in
training_state/, log.jsonl, and pictures of the validation in validation/.
Started again with the same options it goes on from its newest checkpoint, and ends with the same weights as if it had
not been stopped. Several processes share each batch:  torchrun --nproc_per_node=2 train.py -opt options/train.yml"""

_TRAIN_EXIT = """\
exit code: 0 trained to the last step, 1 the training failed, 2 bad options or data, 130 interrupted (and saved).
All options are described in options/README.md."""

_RESTORE = """\
Restore photos into a folder, under their names, with their metadata and transparency.
Photos are files, folders (with all below them) or patterns in quotes ('photos/**/*.jpg'); '-' restores the image that
comes from stdin to stdout. Nothing is overwritten unless asked to; what is done is skipped, so that the same command
goes on after it was stopped. The folder's restored.jsonl records how each result was made."""

_RESTORE_FILES = """\
of a photo a.jpg:  a.jpg              the restoration
  --samples K      a.sample-2.jpg ... K restorations with the seeds SEED, SEED + 1, ...; and a.mean.jpg, their mean
  --uncertainty    a.uncertainty.png  their standard deviation: black is sure, white is a fifth of the range and more
  --compare        a.compare.png      before and after, with --samples also mean and uncertainty

exit code: 0 every photo has its result, 1 some were left out, 2 bad options, 130 interrupted."""


def test(argv: Sequence[str] | None = None) -> int:
    """`python test.py -opt FILE`: evaluate; returns the exit code."""
    example = "--set sampler.num_sample_steps=10 device=cpu"
    parser = _parser("test.py", _TEST, _EXIT, example, "show options, data and work, and stop")
    parser.add_argument("--score-only", action="store_true", help="score the images of an earlier run again")
    return _run(_test, parser.parse_args(argv))


def _parser(name: str, description: str, epilog: str, example: str, dry_run: str) -> argparse.ArgumentParser:
    """What both commands take."""
    parser = argparse.ArgumentParser(
        prog=name, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-opt", "--opt", type=Path, required=True, metavar="FILE", help="option file (YAML)")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="overrides",
        help=f"override options, e.g. {example}",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("--fresh", action="store_true", help="start a new, numbered folder instead of going on")
    return parser


def _run(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        return command(arguments)
    except OptionsError as error:
        print(error, file=sys.stderr)
        return 2


def _test(arguments: argparse.Namespace) -> int:
    options = load_options(locate(arguments.opt), arguments.overrides)
    # Everything below needs torch: a mistake in the file has been reported before.
    from ..data.sets import find_data
    from ..evaluation.run import test_run
    from ..evaluation.summary import sheet_path
    from ..metrics import make_scorer
    from ..restoration.loading import check_weights, restorer_of
    from ..runtime.device import choose_device
    from ..runtime.distributed import processes

    tasks = find_data(options)
    check_weights(options)
    if arguments.dry_run:
        build_solvers(options, build_sde(options))
        print(_work(options, [(task.name, len(task.items), len(task.problems)) for task in tasks]))
        return 0
    device = choose_device(options.device)
    with processes(device) as process:
        restorer = restorer_of(options, device)
        if process.is_main:
            for line in options.ignored:
                logging.info(line)
        scorer, notes = make_scorer(options.metrics.names, options.metrics.crop_border, device)
        done = test_run(
            options,
            tasks,
            restorer,
            scorer,
            process,
            notes=notes,
            fresh=arguments.fresh,
            score_only=arguments.score_only,
        )
        if process.is_main:
            sheets = [str(path) for task in done.job.tasks if (path := sheet_path(done.job, task.name)).is_file()]
            shown = ["contact sheets: " + ", ".join(sheets)] if sheets else []
            print(done.table, *shown, f"results: {done.job.folder}", sep="\n")
        return done.outcome.exit_code


def train(argv: Sequence[str] | None = None) -> int:
    """`python train.py -opt FILE`: train a network; returns the exit code."""
    example = "--set train.niter=1000 datasets.train.batch_size=8"
    parser = _parser("train.py", _TRAIN, _TRAIN_EXIT, example, "show options, data and network, and stop")
    return _run(_train, parser.parse_args(argv))


def _train(arguments: argparse.Namespace) -> int:
    options = load_options(locate(arguments.opt), arguments.overrides, kind="train")
    from ..evaluation.folder import open_folder
    from ..runtime.device import choose_device
    from ..runtime.distributed import processes
    from ..training import run as training

    if arguments.dry_run:
        print(training.described_work(options))
        return 0
    training.check(options)
    device = choose_device(options.device)
    with processes(device) as process:
        if process.is_main:
            for line in options.ignored:
                logging.info(line)
        folder = open_folder(options, arguments.fresh, device, process)
        return training.train(training.make_run(options, folder, device, process), process)


def restore(argv: Sequence[str] | None = None) -> int:
    """`python restore.py PHOTO... -o FOLDER`: restore files; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="restore.py",
        description=_RESTORE,
        epilog=_RESTORE_FILES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("photos", nargs="+", metavar="PHOTO", help="file, folder, pattern, or - for stdin to stdout")
    add("-o", "--output", type=Path, metavar="FOLDER", help="where the results go")
    add("-opt", "--opt", type=Path, default=Path("options/test.yml"), metavar="FILE",
        help="option file, or a .safetensors checkpoint (default: %(default)s)")  # fmt: skip
    add("--nfe", type=at_least(1), metavar="N", help=f"network evaluations (default: the option file's, else {NFE})")
    add("--algorithm", metavar="NAME", help="solver (default: the option file's)")
    add("--seed", type=at_least(0), default=0, metavar="N", help="of the noise, the same for each photo (default: 0)")
    add("--samples", type=at_least(1), metavar="K", help="draw K restorations of each photo")
    add("--uncertainty", action="store_true", help="write where they differ; draws 4 where --samples is not given")
    add("--compare", action="store_true", help="write images of before and after side by side")
    add("--describe", action="store_true", help="print the degradation that DA-CLIP recognises, where it is loaded")
    add("--tile", type=_tile, metavar="SIDE", help="overlapping tiles of this side, auto or off")
    add("--device", default="auto", help="cpu, cuda, cuda:N (default: the option file's, else a GPU if there is one)")
    add("--overwrite", action="store_true", help="replace what is there")
    arguments = parser.parse_args(argv)
    only = [name for name in ("output", "samples", "uncertainty", "compare") if getattr(arguments, name)]
    if "-" in arguments.photos and (len(arguments.photos) > 1 or only):
        parser.error("-: goes from stdin to stdout alone" + (f", without --{only[0]}" if only else ""))
    if "-" not in arguments.photos and arguments.output is None:
        parser.error("-o FOLDER is missing: where the results go")
    if arguments.uncertainty and arguments.samples == 1:
        parser.error("--uncertainty: one sample has none, give --samples 2 or more")
    return _run(_restore, arguments)


def at_least(low: int) -> Callable[[str], int]:
    """The type of an argument: an integer from `low` on."""

    def number(text: str) -> int:
        if not text.isdigit() or int(text) < low:
            raise argparse.ArgumentTypeError(f"expected an integer of at least {low}, got {text!r}")
        return int(text)

    return number


def _tile(text: str) -> int | str:
    return text if text in ("auto", "off") else at_least(64)(text)


def _restore(arguments: argparse.Namespace) -> int:
    options = options_for(locate(arguments.opt))
    if arguments.output is not None and arguments.output.exists() and not arguments.output.is_dir():
        raise OptionsError(f"-o {arguments.output}: is a file, expected a folder")
    from ..data.images import ImageError
    from ..networks.checkpoints import find_file
    from ..restoration import photos
    from ..restoration.loading import restorer_of

    restorer = restorer_of(options, arguments.device)
    samples = arguments.samples or (4 if arguments.uncertainty else 1)
    extras = {key: getattr(arguments, key) for key in ("uncertainty", "compare", "overwrite", "describe")}
    chosen = {key: getattr(arguments, key) for key in ("nfe", "algorithm", "seed", "tile")}
    settings = photos.RestoreSettings(samples=samples, **chosen, **extras)
    try:
        restorer.plan(settings.algorithm, settings.nfe)  # for its errors
    except ValueError as error:
        raise OptionsError(str(error)) from error
    try:
        if arguments.photos == ["-"]:
            photos.pipe(restorer, sys.stdin.buffer, sys.stdout.buffer, settings)
            return 0
        weights = find_file(locate(options.path.pretrain_model_G or ""))
        return photos.run(restorer, arguments.photos, arguments.output, settings, weights).exit_code
    except ImageError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _work(options: Options, tasks: list[tuple[str, int, int]]) -> str:
    """What a run would do."""
    import yaml

    solvers = options.solvers()
    lines = [yaml.safe_dump(resolved(options), sort_keys=False, allow_unicode=True).rstrip(), ""]
    lines += [f"ignored: {line}" for line in options.ignored]
    for name, images, problems in tasks:
        lines.append(f"task {name}: {images} images" + (f", {problems} without a partner" if problems else ""))
    for label, arguments in solvers:
        lines.append(f"solver {label}: " + ", ".join(f"{key} {value}" for key, value in arguments.items()))
    total = len(solvers) * sum(images for _, images, _ in tasks)
    lines.append(f"{total} images to restore into {Path(options.results) / options.run_name}")
    return "\n".join(lines)
