"""Runs over HTTP: they are made with POST, and their tensors fetched in binary, some of a tensor at a time."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import Field

from clearhead.errors import ClearheadError
from clearhead.studio.explore.asked import RunAsked, told
from clearhead.studio.explore.coding import Code
from clearhead.studio.explore.parts import RunId
from clearhead.studio.explore.runs import Runs
from clearhead.studio.explore.tensors import Wanted, piece
from clearhead.studio.frames import dumps

if TYPE_CHECKING:
    from clearhead.studio.live import Workers


class Telling(APIRoute):
    """Answers a question that is refused with {"error": why} and status 200: a person's text that is too long, or a
    link to a run that is gone, is nothing that a browser has to report as a failure of the page.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except ClearheadError as problem:
                why = str(problem)
            except RequestValidationError as problem:
                why = "; ".join(map(_wrong, problem.errors()))
            return Response(dumps({"error": why[:1000]}), media_type="application/json")

        return told


def _wrong(problem: Any) -> str:
    """What is wrong with one part of a request."""
    where = ".".join(map(str, problem["loc"][1:])) or "the request"
    if problem["type"] == "string_unicode":
        return f"the {where} holds half a character (a lone surrogate), which no tokenizer reads; take it out"
    if problem["type"] == "string_too_long":
        return f"the {where} is longer than {problem['ctx']['max_length']:,} characters; shorten it"
    return f"{where}: {problem['msg']}"


router = APIRouter(prefix="/api/v1", route_class=Telling)

SESSION = secrets.token_hex(8)
"""In every ETag: a run's hash does not tell that the weights in a folder have been trained on since."""
POLL = 0.1
"""Seconds between two looks whether somebody still waits."""

Choice = Annotated[str, Query(max_length=2000)]


@router.post("/runs", status_code=201)
async def make_run(request: Request, asked: RunAsked) -> dict[str, Any]:
    """Run a model, or find the run again."""
    runs: Runs = request.app.state.studio.runs
    cancelled = Event()
    return told(await _while_waited_for(request, lambda: asked.make(runs, cancelled), cancelled))


@router.get("/runs/{run}")
async def get_run(request: Request, run: RunId) -> dict[str, Any]:
    """A run that is kept: what a link without its text is opened from."""
    runs: Runs = request.app.state.studio.runs
    return told(runs.get(run))


@router.get("/runs/{run}/tensor/{name}")
async def get_tensor(
    request: Request,
    run: RunId,
    name: Annotated[str, Field(min_length=1, max_length=200)],
    layers: Choice = "",
    heads: Choice = "",
    rows: Choice = "",
    cols: Choice = "",
    most: bool = False,
    pool: Annotated[int, Query(ge=1, le=4096)] = 1,
    code: Annotated[Code, Query(alias="as")] = "f32",
) -> Response:
    """Part of what stands at an address of a run, in binary."""
    runs: Runs = request.app.state.studio.runs
    wanted = Wanted(layers=layers, heads=heads, rows=rows, cols=cols, most=most, pool=pool, code=code)
    tag = f'"{hashlib.sha256(repr((SESSION, run, name, wanted)).encode()).hexdigest()[:32]}"'
    # What a run computed never changes, so a tag that is known needs no look at it.
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    cancelled = Event()
    one = runs.get(run)
    found = await _while_waited_for(request, lambda: piece(runs, one, name, wanted, cancelled), cancelled)
    headers |= {
        "X-Shape": ",".join(map(str, found.shape)),
        "X-Dtype": found.kind,
        "X-Code": "sqrt255" if found.code == "u8sqrt" else "plain",
    }
    return Response(found.data, media_type="application/octet-stream", headers=headers)


@router.post("/pictures", status_code=201)
async def add_picture(request: Request) -> dict[str, str]:
    """A picture of the browser's, as the bytes of its file."""
    data = await request.body()
    uploads = request.app.state.studio.runs.uploads
    return {"picture": await _workers(request).run(lambda: uploads.add_picture(data))}


@router.post("/sounds", status_code=201)
async def add_sound(request: Request) -> dict[str, str]:
    """A sound of the browser's, as the bytes of a WAV file."""
    data = await request.body()
    uploads = request.app.state.studio.runs.uploads
    return {"sound": await _workers(request).run(lambda: uploads.add_sound(data))}


def _workers(request: Request) -> Workers:
    workers: Workers = request.app.state.workers
    return workers


async def _while_waited_for(request: Request, work: Any, cancelled: Event) -> Any:
    """What `work` gives, done beside the event loop; `cancelled` is set where the browser has gone meanwhile."""
    task = asyncio.ensure_future(_workers(request).run_long(work))
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=POLL)
            if not task.done() and await request.is_disconnected():
                cancelled.set()
                break
        return await task
    finally:
        cancelled.set()
        if not task.done():
            with suppress(Exception):
                await task
