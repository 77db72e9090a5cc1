"""app.py: restore images on a web page served by this machine."""

import argparse
import logging
import os
import signal
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..defaults import WEIGHTS
from ..names import OptionsError
from .arguments import add_option_file, add_overrides, new_parser, run

if TYPE_CHECKING:
    from ..app.service import Service
    from ..restoration.restorer import Restorer

_ABOUT = """\
Serve a web page that restores photos: before and after, metrics, uncertainty, solvers side by side.
Everything is computed on this machine, one photo at a time; nothing is sent anywhere else."""

_EXIT = "exit code: 0 stopped by Ctrl-C, 2 bad options, missing weights or a port that is taken."


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXIT)
    add_option_file(parser, "a .safetensors checkpoint, or an option file", WEIGHTS)
    add_overrides(parser, "device=cuda precision=bf16")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=7860, help="port; 0 takes any free one (default: 7860)")
    for name, default, text in (
        ("max-megapixels", 50, "largest photo accepted"),
        ("max-megabytes", 40, "largest file accepted"),
        ("shrink-above", 4, "megapixels to which larger photos are shrunk, unless they are asked for in full"),
    ):
        parser.add_argument(f"--{name}", type=float, default=default, metavar="N", help=f"{text} (default: {default})")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "app.py") -> int:
    """`python app.py`: serve the page until Ctrl-C; returns the exit code."""
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    for name in ("max_megapixels", "max_megabytes", "shrink_above"):
        if not 0 < getattr(arguments, name) <= 10_000:
            value = f"{getattr(arguments, name):g}"
            parser.error(f"--{name.replace('_', '-')}: expected a number above 0, at most 10000, got {value}")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return run(_app, arguments)


def _app(arguments: argparse.Namespace) -> int:
    with suppress(KeyboardInterrupt):
        serve(arguments, free_port(arguments.host, arguments.port))
    return 0


def free_port(host: str, port: int) -> int:
    """The port, or any free one for 0; raises OptionsError if nothing can listen there."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        raise OptionsError(f"--host {host} --port {port}: cannot listen there: {error}") from error


def serve(arguments: argparse.Namespace, port: int) -> None:
    """Load the model, open the page and keep it open."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A second limit behind the check of the header, for OpenCV's own readers. OpenCV reads it when it is imported.
    os.environ["OPENCV_IO_MAX_IMAGE_PIXELS"] = str(int(arguments.max_megapixels * 1e6))
    from ..restoration.loading import load_restorer

    restorer = load_restorer(arguments.opt, overrides=arguments.overrides)
    from ..app.folder import private_folder

    closed = threading.Event()
    with private_folder() as folder, ThreadPoolExecutor(1, "restore") as worker:
        from ..app.server import guarded_page, serving
        from ..app.service import sweep_regularly

        service = make_service(restorer, folder, worker, arguments)
        threading.Thread(target=sweep_regularly, args=(service, closed), daemon=True).start()
        page = guarded_page(service, about(restorer), arguments.host, port)
        with serving(page, arguments.host, port):
            print(f"open http://{arguments.host}:{port} in a browser; Ctrl-C stops", flush=True)
            try:
                closed.wait()
            finally:
                closed.set()
                service.jobs.stop_all()


def make_service(
    restorer: "Restorer", folder: Path, worker: ThreadPoolExecutor, arguments: argparse.Namespace
) -> "Service":
    """The page's service: metrics, limits and examples around a restorer."""
    from ..app.examples import make_examples
    from ..app.service import Service
    from ..app.uploads import MEGA, Limits
    from ..metrics import make_scorer

    scorer, notes = make_scorer(("psnr", "ssim", "lpips"), 0, restorer.device)
    for note in notes:
        print(note, flush=True)
    return Service(
        restorer=restorer,
        scorer=scorer,
        folder=folder,
        worker=worker,
        limits=Limits(
            max_bytes=int(arguments.max_megabytes * MEGA),
            max_pixels=int(arguments.max_megapixels * MEGA),
            at_once=int(arguments.shrink_above * MEGA),
        ),
        examples=make_examples(folder / "examples"),
    )


def about(restorer: "Restorer") -> str:
    """A line about the model: its network, what it predicts, and where it runs."""
    millions = sum(parameter.numel() for parameter in restorer.network.parameters()) / 1e6
    parts = [f"{type(restorer.network).__name__}, {millions:.1f} M parameters", f"predicts {restorer.fit_target}"]
    return ", ".join([*parts, f"on {restorer.device}"])
