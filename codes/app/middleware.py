"""ASGI middleware in front of Gradio: lets through only the routes that the page needs.

Gradio has more routes than the page uses: a proxy, downloads of any URL that a request names, pages for editing and
monitoring. They are all closed here, whatever the version of Gradio.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

_API = "/gradio_api"
_GET = re.compile(
    rf"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)|/(assets|static|svelte)/[\w./@-]+"
    rf"|{_API}/(queue/data|upload_progress|startup-events|theme\.css|app_id|heartbeat/\w+)"
)
_POST = re.compile(rf"{_API}/(upload|queue/join|run/predict|cancel|reset)/?")
_FILE = f"{_API}/file="
_MAX_JSON = 1_000_000
# Form fields and boundaries around an uploaded file.
_MARGIN = 100_000

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


class Gate:
    """ASGI middleware that serves files from `folder` only and answers only requests to `hosts` (None: any).

    Checking the host keeps other web sites from reaching the server through a DNS name of their own.
    """

    def __init__(self, app: ASGI, folder: Path, max_upload: int, hosts: tuple[str, ...] | None) -> None:
        self.app, self.folder, self.max_upload, self.hosts = app, folder.resolve(), max_upload, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        try:
            check_route(scope["method"], scope["path"], self.folder)
            check_host(_header(scope, b"host"), self.hosts)
            check_origin(_header(scope, b"origin"), _header(scope, b"host"))
            if scope["method"] == "POST":
                receive = await self._checked_body(scope, receive)
            await self.app(scope, receive, send_with_headers)
        except Refused as error:
            await _answer(send_with_headers, error)
        except Exception as error:
            log.warning("%s %s failed: %r", scope["method"], scope["path"], error)
            if started:
                raise
            await _answer(send_with_headers, Refused(500, "the server could not handle this request"))

    async def _checked_body(self, scope: Scope, receive: Receive) -> Receive:
        """The body of a request, within its limits. Uploads are counted as they arrive, JSON is checked as a whole."""
        uploads = scope["path"].rstrip("/") == f"{_API}/upload"
        most = self.max_upload + _MARGIN if uploads else _MAX_JSON
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > most:
            raise Refused(413, f"too large: at most {most / 1e6:.1f} MB are accepted")
        if uploads:
            return _limited(receive, most)
        body = await _read(receive, most)
        check_json(body, self.folder)
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        return replay


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


async def _read(receive: Receive, most: int) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False) and message["type"] == "http.request"
        if len(body) > most:
            raise Refused(413, f"too large: at most {most / 1e6:.1f} MB are accepted")
    return body


def _limited(receive: Receive, most: int) -> Receive:
    """The body as it arrives, cut off after `most` bytes; the form parser then rejects it as incomplete."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        return message if seen <= most else {"type": "http.disconnect"}

    return limited


async def _answer(send: Send, error: Refused) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": str(error).encode()})
