"""The socket: named operations, asked and answered while a person moves a slider.

A browser names every place that shows answers (`id`) and counts its questions (`seq`). Of one place, one question is
worked on and the newest waits: a slider that moves faster than the answers come skips what nobody would see. A long
computation is ended by a newer question of its place, a cancel, or the end of the socket.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from clearhead.errors import ClearheadError, UsageError
from clearhead.studio import operations
from clearhead.studio.context import Studio
from clearhead.studio.frames import pack, pack_end, pack_error, parse
from clearhead.studio.guard import INSIDE, LOG
from clearhead.studio.operations import Answer
from clearhead.studio.settings import Limits

T = TypeVar("T")


class Workers:
    """A few threads for what is short, and one for each long computation. None holds up the end of the program."""

    def __init__(self, n_threads: int, n_streams: int) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams = threading.BoundedSemaphore(n_streams)
        for _ in range(n_threads):
            threading.Thread(target=self._serve, name="studio", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._work.get()()

    async def run(self, work: Callable[[], T]) -> T:
        """Do something short beside the event loop."""
        job, future = _job(work)
        self._work.put(job)
        return await future

    async def run_long(self, work: Callable[[], T]) -> T:
        """Do something long, in a thread of its own.

        Raises:
            ClearheadError: too many are under way.
        """
        if not self._streams.acquire(blocking=False):
            raise ClearheadError("too many long computations are under way; stop one, or wait for its end")

        def released() -> T:
            try:
                return work()
            finally:
                self._streams.release()

        job, future = _job(released)
        threading.Thread(target=job, name="studio-long", daemon=True).start()
        return await future


def _job(work: Callable[[], T]) -> tuple[Callable[[], None], asyncio.Future[T]]:
    """Something for a thread to call, and where its outcome will be."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def job() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as problem:  # whoever awaits it gets it, whatever it is
            # A future can't carry StopIteration.
            error = RuntimeError("a generator ended") if isinstance(problem, StopIteration) else problem
        with suppress(RuntimeError):  # the server has ended, and its loop with it
            loop.call_soon_threadsafe(settle, result, error)

    return job, future


@dataclass
class Asked:
    """One question."""

    id: str
    seq: int
    op: str
    args: dict[str, Any]
    is_stale: bool = False
    """Nobody waits for more of its answers."""


@dataclass
class Line:
    """The questions of one place: the one that is worked on, and the newest."""

    running: Asked
    waiting: Asked | None = None


@dataclass
class Live:
    """One browser tab's socket."""

    socket: WebSocket
    studio: Studio
    workers: Workers
    limits: Limits
    lines: dict[str, Line] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def serve(self) -> None:
        """Answer until the tab is closed."""
        await self.socket.accept()
        try:
            while True:
                message = await self.socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if message.get("text") is None:
                    await self.socket.close(1003, "questions are text")
                    return
                await self._hear(message["text"])
        except WebSocketDisconnect:
            return
        finally:
            for line in self.lines.values():
                line.running.is_stale, line.waiting = True, None

    async def _hear(self, text: str) -> None:
        try:
            asked = _asked(text)
            if isinstance(asked, str):
                self._cancel(asked)
            else:
                self._take(asked)
        except _Refused as refusal:
            await self._send(pack_error(str(refusal), id=refusal.id, seq=refusal.seq))

    def _cancel(self, id: str) -> None:
        line = self.lines.get(id)
        if line is not None:
            line.running.is_stale, line.waiting = True, None

    def _take(self, asked: Asked) -> None:
        line = self.lines.get(asked.id)
        if line is not None:
            line.running.is_stale, line.waiting = True, asked
            return
        if len(self.lines) >= self.limits.lines:
            raise _Refused(f"{len(self.lines)} questions are open already; wait for an answer", asked.id, asked.seq)
        line = self.lines[asked.id] = Line(asked)
        task = asyncio.create_task(self._work(line))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _work(self, line: Line) -> None:
        """Answer what is asked in one place, until nothing waits there."""
        try:
            while True:
                with suppress(WebSocketDisconnect):
                    await self._answer(line.running)
                if line.waiting is None:
                    return
                line.running, line.waiting = line.waiting, None
        finally:
            del self.lines[line.running.id]

    async def _answer(self, asked: Asked) -> None:
        began = time.perf_counter()

        def short() -> bytes | Iterator[Answer | None]:
            found = operations.ask(self.studio, asked.op, asked.args)
            return self._packed(asked, found, began, last=True) if isinstance(found, Answer) else found

        try:
            found = await self.workers.run(short)
            if isinstance(found, bytes):
                # One that a newer question overtook is shown all the same: a slider on the move repaints.
                await self._send(found)
            else:
                answers, loop = found, asyncio.get_running_loop()
                await self.workers.run_long(lambda: self._stream(asked, answers, began, loop))
        except WebSocketDisconnect:
            raise
        except ClearheadError as error:
            await self._send(pack_error(str(error)[:1000], id=asked.id, seq=asked.seq))
        except asyncio.CancelledError:  # the server ends
            raise
        except BaseException as error:  # even an exit that a library calls for: it is the question that ends
            LOG.error("%s failed", asked.op, exc_info=error)
            await self._send(pack_error(INSIDE, id=asked.id, seq=asked.seq))

    def _packed(self, asked: Asked, answer: Answer, began: float, *, last: bool) -> bytes:
        ms = 1000 * (time.perf_counter() - began)
        return pack(answer, id=asked.id, seq=asked.seq, ms=ms, last=last, limit=self.limits.answer_bytes)

    def _stream(
        self, asked: Asked, answers: Iterator[Answer | None], began: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Send a generator's answers, each when the one before was taken. Runs in one thread from first to last."""

        def sent(frame: bytes) -> None:
            asyncio.run_coroutine_threadsafe(self._send(frame), loop).result()

        try:
            for answer in answers:
                if answer is not None and not asked.is_stale:
                    sent(self._packed(asked, answer, began, last=False))
                if asked.is_stale:
                    return
                if time.perf_counter() - began > self.limits.stream_seconds:
                    minutes = self.limits.stream_seconds / 60
                    raise ClearheadError(f"stopped after {minutes:g} minutes; start it again to go on")
            sent(pack_end(id=asked.id, seq=asked.seq, ms=1000 * (time.perf_counter() - began)))
        finally:
            close = getattr(answers, "close", None)
            if close is not None:
                close()

    async def _send(self, frame: bytes) -> None:
        """Send one frame; let go of a browser that does not take it.

        Raises:
            WebSocketDisconnect: it has gone, or is let go of.
        """
        async with self.sending:
            if self.socket.application_state is not WebSocketState.CONNECTED:
                raise WebSocketDisconnect(1006)
            try:
                await asyncio.wait_for(self.socket.send_bytes(frame), self.limits.send_seconds)
            except (TimeoutError, RuntimeError):
                self.socket.application_state = WebSocketState.DISCONNECTED
                raise WebSocketDisconnect(1006) from None


class _Refused(Exception):
    """A question that is none. `id` and `seq` as far as they could be read."""

    def __init__(self, message: str, id: str, seq: int) -> None:
        super().__init__(message)
        self.id, self.seq = id, seq


def _asked(text: str) -> Asked | str:
    """The question in a message, or the id that a cancel names."""
    try:
        value = parse(text)
    except UsageError as error:
        raise _Refused(str(error), "", 0) from None
    if not isinstance(value, dict):
        raise _Refused("a question is an object with id, seq, op and args", "", 0)
    id, seq, op, args = value.get("id"), value.get("seq", 0), value.get("op"), value.get("args", {})
    if not isinstance(id, str) or not 0 < len(id) <= 200:
        raise _Refused("id must be a text of 1 to 200 characters", "", 0)
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq < 1 << 32:
        raise _Refused("seq must be a whole number of 32 bits", id, 0)
    if not isinstance(op, str) or len(op) > 100:
        raise _Refused("op must be the name of an operation", id, seq)
    if op == "cancel":
        return id
    if not isinstance(args, dict):
        raise _Refused("args must be an object", id, seq)
    return Asked(id, seq, op, args)
