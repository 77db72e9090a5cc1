"""The command line of app.py."""

import argparse
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import OptionsError

if TYPE_CHECKING:
    from ..app.service import Service
    from ..restoration.restorer import Restorer

_TEXT = """\
A page in the browser that restores images: before and after, metrics, uncertainty, solvers side by side.
It is computed on this machine, one image at a time; nothing is sent anywhere else."""

_EXIT = "exit code: 0 stopped by Ctrl-C, 2 bad options, missing weights or a port that is taken."

_LOCAL = ("127.0.0.1", "localhost", "::1")


def main(argv: Sequence[str] | None = None) -> int:
    """`python app.py`: serve the page until Ctrl-C; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="app.py", description=_TEXT, epilog=_EXIT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-opt", "--opt", default="options/test.yml", metavar="FILE", help="option file, or weights (.safetensors)"
    )
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="override options, e.g. --set device=cuda precision=bf16")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=7860, help="0 takes any free one (default: 7860)")
    parser.add_argument("--max-megapixels", type=float, default=4.0, help="largest image (default: 4)")
    parser.add_argument("--max-megabytes", type=float, default=20.0, help="largest file (default: 20)")
    parser.add_argument("--share-nothing", action="store_true",
                        help="accepted for clarity: no public link is ever made, and nothing is ever sent")  # fmt: skip
    arguments = parser.parse_args(argv)
    for name in ("max_megapixels", "max_megabytes"):
        if not getattr(arguments, name) > 0:
            parser.error(f"--{name.replace('_', '-')}: a positive number is needed, got {getattr(arguments, name):g}")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        port = free_port(arguments.host, arguments.port)
        serve(arguments, port)
    except OptionsError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def free_port(host: str, port: int) -> int:
    """The port, or any free one for 0; raises OptionsError where it cannot be listened on."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        raise OptionsError(f"--host {host} --port {port}: cannot listen there: {error}") from error


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user can enter, for uploads and results; it goes with the page.

    Gradio reads its settings from the environment too. None of them may weaken what the page promises.
    """
    for name in [name for name in os.environ if name.startswith("GRADIO_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="mr-sampler-", ignore_cleanup_errors=True) as folder:
        found = Path(folder).resolve()
        os.environ |= {
            "GRADIO_ANALYTICS_ENABLED": "False",
            "GRADIO_TEMP_DIR": str(found),
            "GRADIO_EXAMPLES_CACHE": str(found / "cached"),
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        yield found


def serve(arguments: argparse.Namespace, port: int) -> None:
    """Load the model, open the page and keep it open."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A second wall behind the check of the header, for OpenCV's own readers. Has to be set before it is imported.
    os.environ["OPENCV_IO_MAX_IMAGE_PIXELS"] = str(int(arguments.max_megapixels * 1e6))
    from ..restoration.loading import load_restorer

    restorer = load_restorer(arguments.opt, overrides=arguments.overrides)
    closed = threading.Event()
    with private_folder() as folder, ThreadPoolExecutor(1, "restore") as worker:
        from ..app.service import sweep_regularly

        service = make_service(restorer, folder, worker, arguments)
        threading.Thread(target=sweep_regularly, args=(service, closed), daemon=True).start()
        page = open_page(service, arguments.host, port)
        try:
            print(f"open http://{arguments.host}:{port} in a browser; Ctrl-C stops", flush=True)
            closed.wait()
        finally:
            closed.set()
            service.jobs.stop()
            page.close(verbose=False)


def make_service(
    restorer: "Restorer", folder: Path, worker: ThreadPoolExecutor, arguments: argparse.Namespace
) -> "Service":
    """The page's service: metrics, limits and examples around a restorer."""
    from ..app.examples import make_examples
    from ..app.service import Service
    from ..app.uploads import MEGA, Limits
    from ..metrics import make_scorer

    scorer, notes = make_scorer(("psnr", "ssim", "lpips"), 0, restorer.device)
    limits = Limits(int(arguments.max_megabytes * MEGA), int(arguments.max_megapixels * MEGA))
    examples = make_examples(folder / "examples")
    return Service(restorer, scorer, folder, worker, limits, examples, tuple(notes))


def open_page(service: "Service", host: str, port: int) -> Any:
    """Start the server in threads of its own; returns the page."""
    import gradio as gr
    from starlette.middleware import Middleware

    from ..app.middleware import Gate
    from ..app.page import STYLE, build_page

    page = build_page(service, about(service.restorer))
    page.queue(max_size=20, api_open=False)
    theme = gr.themes.Default(
        primary_hue="teal",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    hosts = (*_LOCAL, host) if host in _LOCAL else None
    page.launch(
        server_name=host,
        server_port=port,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        inbrowser=False,
        show_error=False,
        footer_links=[],
        run_history=False,
        allowed_paths=[],
        max_file_size=service.limits.max_bytes,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        theme=theme,
        css_paths=[STYLE],
        app_kwargs={
            "middleware": [Middleware(Gate, folder=service.folder, max_upload=service.limits.max_bytes, hosts=hosts)],
            "docs_url": None,
            "redoc_url": None,
            "openapi_url": None,
        },
    )
    return page


def about(restorer: "Restorer") -> str:
    """A line on the model: its network, what it predicts, and where it runs."""
    millions = sum(parameter.numel() for parameter in restorer.network.parameters()) / 1e6
    parts = [f"{type(restorer.network).__name__}, {millions:.1f} M parameters", f"predicts {restorer.fit_target}"]
    return ", ".join([*parts, f"on {restorer.device}"])
