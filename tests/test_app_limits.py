"""What the web page's server does not put up with: half-sent requests, floods of uploads, folders of dead processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from codes.app import middleware, service
from codes.app.folder import private_folder, remove_orphans
from codes.app.uploads import MEGA, Limits
from codes.commands.app import free_port
from codes.metrics import Scorer
from codes.restoration.loading import load_restorer

from .app_server import ROOT, png

PATIENCE = 2.0

pytest.importorskip("gradio", reason="the web page needs the `app` extra")


@dataclass(frozen=True)
class Page:
    """A page in this process: its address, port, folder and service."""

    url: str
    port: int
    service: service.Service

    def files(self) -> list[Path]:
        """The uploaded files, complete or not."""
        return [path for path in self.service.folder.rglob("*") if path.is_file() and not path.name.startswith(".mr-")]


@pytest.fixture(scope="module")
def page(weights, tmp_path_factory):
    """A page that takes files of up to 1 MB, 2 at once, and waits two seconds for the rest of a request."""
    from codes.app.server import guarded_page, serving

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as worker:
        patch.setattr(os, "environ", os.environ.copy())
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("page")))
        patch.setattr(middleware, "PATIENCE", PATIENCE)
        with private_folder() as folder:
            made = service.Service(
                restorer=load_restorer(weights, device="cpu"),
                scorer=Scorer(("psnr",)),
                folder=folder,
                worker=worker,
                limits=Limits(max_bytes=MEGA, max_photos=2),
            )
            port = free_port("127.0.0.1", 0)
            with serving(guarded_page(made, "a model", "127.0.0.1", port), "127.0.0.1", port):
                yield Page(f"http://127.0.0.1:{port}", port, made)


def answer(page, request):
    """What the server says to the beginning of a request until it closes the connection, and after how many seconds."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", page.port), timeout=30) as connection:
        connection.sendall(request.replace(b"HOST", f"127.0.0.1:{page.port}".encode()))
        received = b""
        while part := connection.recv(65536):
            received += part
    return received, time.monotonic() - start


UPLOAD = b"POST /gradio_api/upload HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5000\r\n" + (
    b'Content-Type: multipart/form-data; boundary=X\r\n\r\n--X\r\nContent-Disposition: form-data; name="files"; '
    b'filename="a.png"\r\n\r\n'
)


HALF_SENT = {
    "nothing": (b"", b""),
    "head": (b"GET / HTTP/1.1\r\nHost: HO", b""),
    "second head": (
        b"GET /robots.txt HTTP/1.1\r\nHost: HOST\r\n\r\nGET /robots.txt HTTP/1.1\r\nHos",
        b"HTTP/1.1 200",
    ),
    "body": (b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: HOST\r\nContent-Length: 50\r\n\r\n{", b"HTTP/1.1 408"),
    "upload": (UPLOAD + b"begun", b"HTTP/1.1 408"),
}


def test_half_sent_requests_are_given_up(page):
    with ThreadPoolExecutor(len(HALF_SENT)) as pool:
        answers = list(pool.map(lambda sent: answer(page, sent[0]), HALF_SENT.values()))
        assert httpx.get(page.url, timeout=60).status_code == 200
    for (name, (_, status)), (received, seconds) in zip(HALF_SENT.items(), answers, strict=True):
        assert received.startswith(status) and bool(received) == bool(status), name
        assert 0.9 * PATIENCE < seconds < 30, name
        if status.endswith(b"408"):
            assert b"the request did not arrive in time" in received
            assert b"content-security-policy" in received


def test_requests_that_arrive_in_time_are_not_given_up(page):
    request = b"GET /robots.txt HTTP/1.1\r\nHost: HOST\r\n\r\n".replace(b"HOST", f"127.0.0.1:{page.port}".encode())
    with socket.create_connection(("127.0.0.1", page.port), timeout=30) as connection:
        for _ in range(3):
            for part in (request[:20], request[20:]):
                time.sleep(0.05)
                connection.sendall(part)
            received = b""
            while not received.endswith(b"Disallow: "):  # the end of robots.txt
                received += connection.recv(65536)
            assert received.startswith(b"HTTP/1.1 200")


def test_broken_off_uploads_are_swept_and_floods_are_refused(page):
    before = page.files()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: answer(page, UPLOAD + b"begun"), range(3)))
    broken = [path for path in page.files() if path not in before]
    page.service.sweep()
    assert len(broken) == 3 and all(path.exists() for path in broken)  # they might still grow
    for path in broken:
        os.utime(path, (time.time() - service.UNFINISHED - 1,) * 2)
    page.service.sweep()
    assert page.files() == before
    content = png() + bytes(900_000)
    statuses = [
        httpx.post(f"{page.url}/gradio_api/upload", files={"files": (f"{i}.png", content)}, timeout=60)
        for i in range(6)
    ]
    taken = [response.status_code for response in statuses]
    assert taken == [200, 200, 429, 429, 429, 429]
    assert "too many uploads: more than 2 MB; try again in a minute" in statuses[-1].text
    assert sum(path.stat().st_size for path in page.files()) < 2 * MEGA
    assert httpx.get(page.url, timeout=60).status_code == 200


OWNER = """
import time
from codes.app.folder import private_folder
with private_folder() as folder:
    (folder / "photo.png").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(600)
"""


def test_the_folder_of_a_killed_page_is_removed_at_the_next_start_and_that_of_a_living_one_stays(tmp_path):
    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            text=True,
            stdout=subprocess.PIPE,
        )
        return process, Path(process.stdout.readline().strip())

    (killed, orphan), (alive, owned) = start(), start()
    (tmp_path / "mr-sampler-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other").mkdir()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        remove_orphans(tmp_path)
        assert orphan.exists()  # too new: it might not be claimed yet
        for folder in (orphan, owned):
            os.utime(folder, (0, 0))
        remove_orphans(tmp_path)
        assert not orphan.exists() and (owned / "photo.png").exists()
        assert (tmp_path / "elsewhere").exists() and (tmp_path / "other").exists()
    finally:
        alive.terminate()
        alive.wait(60)
        killed.stdout.close()
        alive.stdout.close()
