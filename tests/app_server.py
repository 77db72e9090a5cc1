"""The web page in its own process, with a small random network, and a client that needs no browser."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from codes.data.images import encode_image

from .evaluation import write_weights

ROOT = Path(__file__).parent.parent
MEGABYTES = 1


def photo(height: int = 48, width: int = 64, seed: int = 0) -> np.ndarray:
    """A smooth image, with different colours for each seed."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin((x * (i + 1) + y * (seed + 2)) / 9 + seed) for i in range(3)]
    return np.round(127.5 + 120 * np.stack(waves, axis=2)).astype(np.uint8)


def png(**size: int) -> bytes:
    """The image of `photo` as a PNG file."""
    return encode_image(photo(**size), ".png")


@dataclass(frozen=True)
class Server:
    """A running page: where it is, its process, its weights and the lines it has printed."""

    url: str
    process: subprocess.Popen[str]
    weights: Path
    lines: list[str]

    @property
    def alive(self) -> bool:
        """Whether it runs and answers."""
        return self.process.poll() is None and httpx.get(self.url, timeout=60).status_code == 200


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A page that takes files of up to 1 MB and 13 megapixels, and shrinks photos to 0.1 megapixels."""
    weights = folder / "tiny.safetensors"
    write_weights(weights)
    command = [sys.executable, "app.py", "--opt", str(weights), "--set", "device=cpu", "--port", "0"]
    command += ["--max-megabytes", str(MEGABYTES), "--max-megapixels", "13", "--shrink-above", "0.1"]
    environment = os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1", "GRADIO_ALLOWED_PATHS": "/"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"http://[\d.]+:\d+", line):
                break
        else:
            raise AssertionError(f"the page did not start:\n{''.join(lines)}")
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or []), daemon=True)
        reader.start()
        yield Server(found.group(), process, weights, lines)
    finally:
        process.terminate()
        process.wait(timeout=60)


class Client:
    """One user: uploads, presses buttons, and reads what the page would show, by the widgets' names."""

    def __init__(self, server: Server, session: str) -> None:
        self.http = httpx.Client(base_url=server.url, timeout=120)
        self.session = session
        self.config = self.http.get("/config").json()
        self.names = {item["id"]: item["props"].get("elem_id") for item in self.config["components"]}

    def upload(self, name: str, content: bytes) -> httpx.Response:
        """Send a file as the browser does."""
        return self.http.post("/gradio_api/upload", files={"files": (name, content)})

    def chosen(self, name: str = "photo.png", content: bytes | None = None) -> dict[str, Any]:
        """An uploaded file as the value of a widget."""
        (path,) = self.upload(name, png() if content is None else content).json()
        return {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": name}

    def function(self, widget: str, event: str) -> dict[str, Any]:
        """What happens at an event of a widget; for a click the work, which follows a first answer."""
        for function in self.config["dependencies"]:
            if any(self.names.get(target) == widget and kind == event for target, kind in function["targets"]):
                following = [f for f in self.config["dependencies"] if f["trigger_after"] == function["id"]]
                return following[0] if following else function
        raise KeyError((widget, event))

    def body(self, function: dict[str, Any], data: list[Any]) -> dict[str, Any]:
        """The request that the page makes."""
        return {"data": data, "fn_index": function["id"], "session_hash": self.session, "event_data": None}

    def call(self, widget: str, event: str, data: list[Any]) -> httpx.Response:
        """An event that is answered at once."""
        return self.http.post("/gradio_api/run/predict", json=self.body(self.function(widget, event), data))

    def check(self, value: dict[str, Any]) -> tuple[Any, str]:
        """What the page shows for an upload: the gallery's value, and the message."""
        response = self.call("image", "upload", [in_gallery(value)])
        assert response.status_code == 200, response.text
        images, _, problem, *_ = response.json()["data"]
        return images, problem

    def run(self, widget: str, data: list[Any]) -> Iterator[dict[str, Any]]:
        """Press a button; yields the messages of the queue until the work is done."""
        joined = self.http.post("/gradio_api/queue/join", json=self.body(self.function(widget, "click"), data))
        assert joined.status_code == 200, joined.text
        event = joined.json()["event_id"]
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.session}) as stream:
            for line in stream.iter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line.removeprefix("data:"))
                if message.get("event_id") == event:
                    yield message
                    if message["msg"] == "process_completed":
                        return

    def result(self, widget: str, data: list[Any]) -> dict[str, Any]:
        """What the page shows when the work is done, by widget."""
        *_, last = self.run(widget, data)
        return self.shown(widget, last)

    def shown(self, widget: str, message: dict[str, Any]) -> dict[str, Any]:
        """The values within a message, by widget."""
        function = self.function(widget, "click")
        return dict(zip([self.names.get(i) for i in function["outputs"]], message["output"]["data"], strict=True))

    def settings(self, *images: Any, **changes: Any) -> list[Any]:
        """The values that the restore button sends: images, reference, and the fields of `Choice`."""
        return [in_gallery(*images), None, *settings(**changes)]

    def downloads(self, results: str, kind: str = "file") -> list[tuple[str, bytes]]:
        """The files behind the links of a page's results: names and contents."""
        found = re.findall(rf'<a class="download {kind}" href="([^"]*)" download="([^"]*)"', results)
        return [(unescape(name), self.http.get(unescape(address)).content) for address, name in found]


def in_gallery(*images: Any) -> list[Any]:
    """Uploaded files as the value of the page's gallery."""
    return [{"image": image, "caption": None} for image in images]


def settings(**changes: Any) -> list[Any]:
    """The values of the page's settings, in their order."""
    values = {
        "solver": "mrsampler-pc", "nfe": 2, "seed": 0, "samples": 1, "automatic": True, "strength": 1.0, "full": False,
        "order": "", "tau": "", "grid": "", "clamp": "", "compat": "",
    }  # fmt: skip
    assert changes.keys() <= values.keys()
    return list((values | changes).values())
