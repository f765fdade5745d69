"""A Studio on a real socket, in a thread of the test's own process, and what asks it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from websockets.sync.client import ClientConnection, connect

from clearhead.studio.frames import unpack
from clearhead.studio.serve import Server, listen
from clearhead.studio.settings import Settings

TOKEN = "a-token-of-tests"


@dataclass
class Served:
    """A Studio that runs."""

    settings: Settings
    server: Server

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.settings.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    @property
    def cookie(self) -> dict[str, str]:
        return {f"clearhead-{self.settings.port}": self.settings.token}

    def client(self, **how: Any) -> httpx.Client:
        """What asks over HTTP, as a page of the Studio does."""
        how = {"cookies": self.cookie, "headers": {"Origin": self.origin}, "timeout": 30, **how}
        return httpx.Client(base_url=self.origin, **how)

    def socket(self, **how: Any) -> ClientConnection:
        """A socket, as a page of the Studio opens it."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookie.items())
        how = {"origin": self.origin, "additional_headers": {"Cookie": cookie}, "compression": None, **how}
        return connect(f"ws://{self.host}/api/v1/live", max_size=None, open_timeout=20, **how)

    def lives(self) -> bool:
        """Whether it still answers, over HTTP and over the socket."""
        with self.client() as client, self.socket() as socket:
            told, _ = ask(socket, "test.echo", {"value": "alive"})
            return client.get("/api/v1/models").status_code == 200 and bool(told["data"]["value"] == "alive")


@contextmanager
def serving(static: Path, **how: Any) -> Iterator[Served]:
    """A Studio, until the block ends."""
    reached = threading.Event()
    socket = listen(0)
    settings = Settings(port=socket.getsockname()[1], token=TOKEN, static=static, **how)
    server = Server(settings, reached.set)
    thread = threading.Thread(target=server.run, args=([socket],), daemon=True)
    thread.start()
    assert reached.wait(60)
    try:
        yield Served(settings, server)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def pages(folder: Path) -> Path:
    """A folder as the build leaves it, with next to nothing in it."""
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>studio</title>")
    (folder / "assets" / "main-1a2b.js").write_text("export {}")
    return folder


def send(socket: ClientConnection, op: str, args: dict[str, Any] | None = None, *, id: str = "a", seq: int = 1) -> None:
    """Ask, and wait for nothing."""
    socket.send(json.dumps({"id": id, "seq": seq, "op": op, "args": args or {}}))


def receive(socket: ClientConnection, timeout: float = 20) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The next frame."""
    frame = socket.recv(timeout)
    assert isinstance(frame, bytes)
    return unpack(frame)


def ask(socket: ClientConnection, op: str, args: dict[str, Any] | None = None, **how: Any) -> Any:
    """Ask, and wait for the first frame."""
    send(socket, op, args, **how)
    return receive(socket)
