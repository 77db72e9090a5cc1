"""Serving the page: Gradio behind the middleware, and a server that waits for nobody forever."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from . import middleware
from .middleware import Gate, Quota
from .page import SCRIPT, STYLE, build_page
from .service import Service

LOCAL = ("127.0.0.1", "localhost", "::1")


class Impatient(H11Protocol):
    """Uvicorn's protocol, which also closes connections whose request does not begin or its head does not end."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, or stop waiting."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(middleware.PATIENCE, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def guarded_page(service: Service, about: str, host: str, port: int) -> Gate:
    """The page as an application, behind its middleware."""
    page = build_page(service, about)
    page.queue(max_size=20, api_open=False)
    theme = gr.themes.Default(
        primary_hue="teal",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    closed: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    app = gr.mount_gradio_app(
        FastAPI(**closed),
        page,
        path="/",
        server_name=host,
        server_port=port,
        footer_links=[],
        run_history=False,
        allowed_paths=[],
        show_error=False,
        max_file_size=service.limits.max_bytes,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=theme,
        css_paths=[STYLE],
        head=f"<script>{SCRIPT.read_text(encoding='utf-8')}</script>",
        app_kwargs=closed,
    )
    # As many photos as may be restored at once, but not again and again.
    batch = service.limits.max_photos * service.limits.max_bytes
    hosts = (*LOCAL, host) if host in LOCAL else None
    return Gate(app, folder=service.folder, quota=Quota(batch, 4 * batch), hosts=hosts)


@contextmanager
def serving(app: Any, host: str, port: int) -> Iterator[None]:
    """An application, open while the block runs; the server has a thread of its own."""
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", http=Impatient, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="page", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise OSError(f"the server did not start on {host}:{port}")
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(10)
