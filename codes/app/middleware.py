"""ASGI middleware in front of Gradio: lets through only the routes that the page needs.

Gradio has more routes than the page uses: a proxy, downloads of any URL that a request names, pages for editing and
monitoring. They are all closed here, whatever the version of Gradio. Uploads are limited in size, sum and rate, and a
request that stops arriving is given up.
"""

import asyncio
import json
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..names import is_number

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

_API = "/gradio_api"
_GET = re.compile(
    rf"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)|/(assets|static|svelte)/[\w./@-]+"
    rf"|{_API}/(queue/data|upload_progress|startup-events|info|theme\.css|app_id|heartbeat/\w+)"
)
_POST = re.compile(rf"{_API}/(upload|queue/join|run/predict|cancel|reset)/?")
_FILE = f"{_API}/file="
_MAX_JSON = 1_000_000
PATIENCE = 30.0  # seconds for the next part of a request
LONGEST = 900.0  # seconds for a whole request

# The browser itself refuses to load from, or send to, any other server.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class Refused(Exception):
    """A refused request, with HTTP status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class Quota:
    """Bytes that may be uploaded by all users together: `minute` within a minute, `hour` within an hour."""

    minute: int
    hour: int
    taken: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, size: int, now: float | None = None) -> None:
        """Count bytes that have arrived (or that are about to, with size 0); raises Refused when there are too many."""
        now = time.monotonic() if now is None else now
        while self.taken and self.taken[0][0] < now - 3600:
            self.taken.popleft()
        if self.taken and now - self.taken[-1][0] < 1:  # one entry a second
            now, before = self.taken.pop()
            size += before
        self.taken.append((now, size))
        for limit, seconds, wait in ((self.minute, 60, "a minute"), (self.hour, 3600, "an hour")):
            if sum(size for moment, size in self.taken if moment > now - seconds) > limit:
                raise Refused(429, f"too many uploads: more than {limit / 1e6:.0f} MB; try again in {wait}")


class Gate:
    """ASGI middleware that serves files from `folder` only and answers only requests to `hosts` (None: any).

    Checking the host keeps other web sites from reaching the server through a DNS name of their own.
    """

    def __init__(self, app: ASGI, folder: Path, quota: Quota, hosts: tuple[str, ...] | None) -> None:
        self.app, self.folder, self.quota, self.hosts = app, folder.resolve(), quota, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if body is not None and body.refused is not None:
                return  # the application's answer to a body that was cut off
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        body = refused = None
        try:
            check_route(scope["method"], scope["path"], self.folder)
            check_host(_header(scope, b"host"), self.hosts)
            check_origin(_header(scope, b"origin"), _header(scope, b"host"))
            if scope["method"] == "POST":
                uploads = scope["path"].rstrip("/") == f"{_API}/upload"
                body = Body(receive, self.quota.minute if uploads else _MAX_JSON, self.quota if uploads else None)
                body.check_length(_header(scope, b"content-length"))
                receive = body.receive if uploads else await self._checked_json(body)
            await self.app(scope, receive, send_with_headers)
        except Refused as error:
            refused = error
        except Exception as error:
            if body is None or body.refused is None:
                log.warning("%s %s failed: %r", scope["method"], scope["path"], error)
                refused = Refused(500, "the server could not handle this request")
        if body is not None and (refused or body.refused):
            refused, body.refused = refused or body.refused, None
            await body.drain()
        if refused is not None and not started:
            await _answer(send_with_headers, refused)

    async def _checked_json(self, body: "Body") -> Receive:
        """The body as a whole, after its check."""
        content, more = b"", True
        while more:
            message = await body.receive()
            if body.refused is not None:
                raise body.refused
            content += message.get("body", b"")
            more = message.get("more_body", False) and message["type"] == "http.request"
        check_json(content, self.folder)
        messages = [{"type": "http.request", "body": content, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await body.receive()

        return replay


class Body:
    """The body of a request as it arrives, cut off when it is too large or too slow; `refused` then says why."""

    def __init__(self, receive: Receive, most: int, quota: Quota | None) -> None:
        self._receive, self.most, self.quota = receive, most, quota
        self.refused: Refused | None = None
        self._size, self._complete = 0, False
        self._end = time.monotonic() + LONGEST

    def check_length(self, length: str) -> None:
        """Raise Refused early where the announced length is too large, or nothing more is taken."""
        if is_number(length) and int(length[:20]) > self.most:
            raise self._too_large()
        if self.quota is not None:
            self.quota.take(0)

    async def receive(self) -> Message:
        """The next part. After the last one this waits for the end of the connection, as long as that takes."""
        if self._complete:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), min(PATIENCE, self._end - time.monotonic()))
            self._complete = not message.get("more_body", False)
            self._size += len(message.get("body", b""))
            if self._size > self.most:
                raise self._too_large()
            if self.quota is not None:
                self.quota.take(len(message.get("body", b"")))
        except (TimeoutError, Refused) as error:
            self.refused = error if isinstance(error, Refused) else Refused(408, "the request did not arrive in time")
            return {"type": "http.disconnect"}
        return message

    async def drain(self) -> None:
        """Take what is on its way and drop it, for some seconds: a connection closed before would lose the answer."""
        try:
            async with asyncio.timeout(min(5.0, PATIENCE)):
                while not self._complete:
                    self._complete = not (await self._receive()).get("more_body", False)
        except TimeoutError:
            pass

    def _too_large(self) -> Refused:
        return Refused(413, f"too large: at most {self.most / 1e6:.1f} MB are accepted")


def check_route(method: str, path: str, folder: Path) -> None:
    """Raise Refused unless the page uses this route."""
    if method == "POST" and _POST.fullmatch(path):
        return
    if method in ("GET", "HEAD"):
        if _GET.fullmatch(path) and ".." not in path:
            return
        if path.startswith(_FILE):
            for name in (path, unquote(path)):  # as sent, and as a second decoding would read it
                check_file(name.removeprefix(_FILE), folder)
            return
    raise Refused(404, "not found")


def check_file(path: str, folder: Path) -> None:
    """Raise Refused unless the path lies within the folder; reveals nothing about other files."""
    if "\0" in path or len(path) > 4096:
        raise Refused(403, "not allowed")
    try:
        found = Path(path).resolve()
    except (OSError, RuntimeError) as error:
        raise Refused(403, "not allowed") from error
    if not Path(path).is_absolute() or not found.is_relative_to(folder):
        raise Refused(403, "not allowed")


def check_host(host: str, allowed: tuple[str, ...] | None) -> None:
    """Raise Refused unless the request names one of the server's own hosts."""
    name = re.sub(r":\d+$", "", host).strip("[]").lower()
    if allowed is not None and name not in allowed:
        raise Refused(421, f"this server does not answer to the name {name[:80]!r}")


def check_origin(origin: str, host: str) -> None:
    """Raise Refused if the request comes from a page of another server."""
    if origin and origin.partition("://")[2].lower() != host.lower():
        raise Refused(403, "requests from other sites are refused")


def check_json(body: bytes, folder: Path) -> None:
    """Raise Refused unless the body is JSON whose files are all within the folder.

    Gradio would download a file whose path is a URL.
    """
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the request is not JSON") from error
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("path") is not None:
                try:
                    check_file(str(value["path"]), folder)
                except Refused as error:
                    raise Refused(400, "this is not a file that was uploaded to this page") from error
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def _answer(send: Send, error: Refused) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": str(error).encode()})
