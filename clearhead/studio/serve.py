"""One server on one socket of this machine, from the free port to the last answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn

from clearhead.errors import ClearheadError
from clearhead.studio.app import build
from clearhead.studio.settings import Settings

HOST = "127.0.0.1"


def listen(port: int, *, tries: int = 20) -> socket.socket:
    """A socket on a free port: `port`, or the next that is free; 0 takes any.

    Raises:
        ClearheadError: none of them is free.
    """
    for number in range(port, min(port + tries, 65536)):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # A server that ended a moment ago leaves its port in waiting, which is no reason to take another.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, number))
            found.listen(128)
        except OSError:
            found.close()
            continue
        return found
    raise ClearheadError(f"no port from {port} on is free; give another, or --port 0 for any")


class Server(uvicorn.Server):
    """Uvicorn's server, which says when it can be reached."""

    def __init__(self, settings: Settings, reached: Callable[[], None] | None = None) -> None:
        self.reached = reached
        self.app = build(settings)
        super().__init__(
            uvicorn.Config(
                self.app,
                log_level="warning",
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                ws="websockets-sansio",
                ws_max_size=settings.limits.message_bytes,
                ws_per_message_deflate=False,  # numbers hardly shrink, and there is no network to save
                timeout_graceful_shutdown=1,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.reached is not None:
            asyncio.get_running_loop().call_soon(self.reached)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A tab that is still open, or a pass that is under way, is no error at the end.
        log = logging.getLogger("uvicorn.error")
        log.disabled = True
        try:
            await super().shutdown(sockets)
        finally:
            log.disabled = False
