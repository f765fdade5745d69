"""Who may ask: this machine's browser alone, with the token of the printed link, from the Studio's own pages.

A page on the web can make a browser send requests to 127.0.0.1. It can't set Host or Origin, it does not know the
token, and the cookie is not sent for it (SameSite=Strict).
"""

from __future__ import annotations

import asyncio
import hmac
import html
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from clearhead.studio.settings import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("clearhead.studio")
INSIDE = "something failed inside (see the terminal)"

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>{head}
<meta name="viewport" content="width=device-width"><style>:root{{color-scheme:light dark}}
body{{font:19px/1.55 Georgia,serif;max-width:34em;margin:15vh auto;padding:0 24px}}
h1{{font-size:30px}}</style><main><h1>{title}</h1><p>{text}</p></main></html>"""


def page(title: str, text: str, head: str = "") -> bytes:
    """A plain page that needs nothing else."""
    return PAGE.format(title=html.escape(title), text=html.escape(text), head=head).encode()


class Guard:
    """An ASGI application around another, which lets through what may ask."""

    def __init__(self, app: App, *, token: str, port: int, limits: Limits) -> None:
        self.app, self.token, self.limits = app, token, limits
        self.cookie = f"clearhead-{port}"
        names = ("127.0.0.1", "localhost", "[::1]")
        self.hosts = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
        self.n_sockets = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    # ---- HTTP

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = _headers(scope, b"host")
        send = self._with_headers(send, hosts[0] if hosts else "")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        reads = scope["method"] in ("GET", "HEAD")
        if not self._is_ours(hosts):
            await _refuse(send, 421, "This is not the address", "Open the link that the terminal shows.")
        elif not reads and not self._is_own_origin(scope, hosts[0]):
            await _refuse(send, 403, "Refused", "Only the Studio's own pages may ask this.")
        elif reads and given and self._is_token(given[0]):
            await self._let_in(scope, send, [pair for pair in query if pair[0] != "token"])
        elif not self._knows_token(scope):
            text = "Open the Studio by the link that its terminal shows: it holds the key. A new start makes a new one."
            await _refuse(send, 403, "The key is missing", text)
        else:
            try:
                body = b"" if reads else await asyncio.wait_for(self._body(scope, receive), self.limits.body_seconds)
            except TimeoutError:
                await _refuse(send, 408, "Too slow", "The request did not arrive in time.")
            except _TooLarge:
                most = f"{self.limits.message_bytes:,}"
                await _refuse(send, 413, "Too large", f"A request has at most {most} bytes.")
            else:
                await self._answered(scope, _replayed(body, receive), send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's answer. A defect of it is told on the terminal, and the browser gets a sentence."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            LOG.error("%s failed", scope["path"], exc_info=error)
            if not begun:
                await _answer(send, 500, json.dumps({"error": INSIDE}).encode(), kind=b"application/json")

    async def _let_in(self, scope: Scope, send: Send, query: list[tuple[str, str]]) -> None:
        """Put the token into a cookie, and go to the same address without it."""
        # One slash: "//host/" would lead to another machine.
        path = "/" + quote(scope["path"].lstrip("/\\"), safe="/@:~!$&'()*+,;=-._")
        to = path + (f"?{urlencode(query)}" if query else "")
        headers = [(b"set-cookie", f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/".encode())]
        # A link that was followed from another site's page would arrive without the cookie if it were redirected: the
        # browser counts the whole chain as that site's. A page of our own that goes on begins a new one.
        if _headers(scope, b"sec-fetch-site") in ([], ["none"], ["same-origin"]):
            await _answer(send, 303, b"", [*headers, (b"location", to.encode("ascii"))])
        else:
            refresh = f'<meta http-equiv="refresh" content="0;url={html.escape(to)}">'
            await _answer(send, 200, page("Opening the Studio", "One moment.", refresh), headers)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        told = _headers(scope, b"content-length")
        if told and told[0].isdecimal() and int(told[0][:20]) > self.limits.message_bytes:
            raise _TooLarge
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.limits.message_bytes:
                raise _TooLarge
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return bytes(body)

    # ---- the socket

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = _headers(scope, b"host")
        if not (self._is_ours(hosts) and self._is_own_origin(scope, hosts[0]) and self._knows_token(scope)):
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: HTTP 403
            return
        if self.n_sockets >= self.limits.sockets:
            await receive()
            await send({"type": "websocket.close", "code": 1013})
            return

        async def bounded() -> Message:
            message = await receive()
            size = len(message.get("text") or "") or len(message.get("bytes") or b"")
            if size > self.limits.message_bytes:
                await send({"type": "websocket.close", "code": 1009, "reason": "the message is too large"})
                return {"type": "websocket.disconnect", "code": 1009}
            return message

        self.n_sockets += 1
        try:
            await self.app(scope, bounded, send)
        finally:
            self.n_sockets -= 1

    # ---- what is checked

    def _is_ours(self, hosts: list[str]) -> bool:
        return len(hosts) == 1 and hosts[0].lower() in self.hosts

    def _is_own_origin(self, scope: Scope, host: str) -> bool:
        return _headers(scope, b"origin") == [f"http://{host}"]

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def _knows_token(self, scope: Scope) -> bool:
        for line in _headers(scope, b"cookie"):
            try:
                found = SimpleCookie(line).get(self.cookie)
            except CookieError:
                continue
            if found is not None and self._is_token(found.value):
                return True
        return False

    def _with_headers(self, send: Send, host: str) -> Send:
        """`send` with what every answer says: nothing is loaded from elsewhere, and nobody else may load this."""
        sockets = f" ws://{host}" if host.lower() in self.hosts else ""
        policy = (
            "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; "
            f"connect-src 'self'{sockets}; object-src 'none'; base-uri 'none'; form-action 'self'; "
            "frame-ancestors 'none'"
        )
        always = [
            (b"content-security-policy", policy.encode("ascii")),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                if not any(name.lower() == b"cache-control" for name, _ in given):
                    given.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*given, *always]}
            await send(message)

        return with_headers


class _TooLarge(Exception):
    pass


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` for an application that is given a body that was read already."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


async def _refuse(send: Send, status: int, title: str, text: str) -> None:
    await _answer(send, status, page(title, text))


async def _answer(
    send: Send,
    status: int,
    body: bytes,
    headers: Sequence[tuple[bytes, bytes]] = (),
    kind: bytes = b"text/html; charset=utf-8",
) -> None:
    about = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*about, *headers]})
    await send({"type": "http.response.body", "body": body})
