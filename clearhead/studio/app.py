"""The server: pages, models, tokens and the socket, behind the guard."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

import clearhead.studio.catalogue  # noqa: F401 - registers the operations
from clearhead.errors import ClearheadError
from clearhead.studio.context import Studio
from clearhead.studio.explore import routes
from clearhead.studio.explore.runs import Runs
from clearhead.studio.frames import dumps
from clearhead.studio.guard import Guard, page
from clearhead.studio.live import Live, Workers
from clearhead.studio.models import Models
from clearhead.studio.run_folders import RunFolders
from clearhead.studio.settings import HOW_TO_BUILD, Settings

FOREVER = "public, max-age=31536000, immutable"
mimetypes.add_type("text/javascript", ".js")  # some systems' tables have nothing for it, or text/plain
mimetypes.add_type("font/woff2", ".woff2")


class Told(Response):
    """JSON without NaN."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content).encode("ascii")


class Text(BaseModel):
    """A text for a model's tokenizer."""

    model_config = ConfigDict(extra="forbid")
    model: Annotated[str, Field(max_length=100)]
    text: Annotated[str, Field(max_length=100_000)]


def build(settings: Settings) -> FastAPI:
    """The application of one Studio. `app.state.studio` is what its operations may use."""
    app = FastAPI(
        title="clearhead studio", docs_url=None, redoc_url=None, openapi_url=None, default_response_class=Told
    )
    folders = RunFolders(settings.folders)
    models = Models(settings.sources, runs=folders, limit_bytes=settings.model_bytes)
    app.state.studio = studio = Studio(
        models=models, runs=Runs(models), folders=settings.folders, claims=settings.claims
    )
    app.state.settings = settings
    app.state.workers = workers = Workers(max(4, min(8, os.cpu_count() or 4)), settings.limits.streams)

    async def live(socket: WebSocket) -> None:
        await Live(socket, studio, workers, settings.limits).serve()

    app.add_api_route("/api/v1/models", _models, methods=["GET"])
    app.add_api_route("/api/v1/tokenize", _tokenize, methods=["POST"])
    app.add_api_websocket_route("/api/v1/live", live)
    app.include_router(routes.router)
    app.add_route("/{path:path}", _pages, methods=["GET"])
    for kind, answer in ((ClearheadError, _refused), (RequestValidationError, _invalid), (HTTPException, _http)):
        app.add_exception_handler(kind, answer)
    app.add_middleware(Guard, token=settings.token, port=settings.port, limits=settings.limits)
    return app


# ---- what is asked over HTTP


def _models(request: Request) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = request.app.state.studio.models.listing()
    return found


def _tokenize(request: Request, asked: Text) -> dict[str, Any]:
    """The tokens of a text: id, how it reads, and the characters of the text that it stands for."""
    models: Models = request.app.state.studio.models
    tokenizer = models.tokenizer(asked.model)
    ids = tokenizer.encode(asked.text)
    return {
        "tokens": [
            {"id": id, "text": text, "start": start, "end": end}
            for id, text, (start, end) in zip(
                ids, tokenizer.pieces(ids), _spans(tokenizer, asked.text, ids), strict=True
            )
        ]
    }


def _spans(tokenizer: Any, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """Where in the text each token stands, in characters; a mark stands nowhere, at its place. All zero where the
    tokenizer does not say it of these very ids.
    """
    found = tokenizer.core.encode(text)
    return [tuple(span) for span in found.offsets] if found.ids == ids else [(0, 0)] * len(ids)


# ---- pages


async def _pages(request: Request) -> Response:
    """A file of the built pages; any other path is the application's, which knows its own routes."""
    settings: Settings = request.app.state.settings
    path = request.path_params["path"]
    if path == "api" or path.startswith("api/"):
        raise HTTPException(404, "there is nothing at this address")
    if not settings.is_built:
        return Response(
            page("The pages are not built", f"{HOW_TO_BUILD[0].upper()}{HOW_TO_BUILD[1:]}"), 503, None, "text/html"
        )
    file = _file(settings.static, path)
    if file is not None:
        hashed = path.startswith("assets/")
        return FileResponse(file, headers={"cache-control": FOREVER if hashed else "no-cache"})
    if path.startswith("assets/"):
        raise HTTPException(404, "there is no such file")
    return FileResponse(settings.static / "index.html", headers={"cache-control": "no-cache"})


def _file(static: Path, path: str) -> Path | None:
    """The file of a path below the folder of pages, and nowhere else."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") or set(part) & set("\\:\0") for part in parts):
        return None
    try:
        found = static.joinpath(*parts).resolve()
        return found if found.is_file() and found.is_relative_to(static.resolve()) else None
    except (OSError, ValueError):
        return None


# ---- what is refused


async def _refused(request: Request, error: Exception) -> Response:
    return Told({"error": str(error)[:1000]}, 400)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Told({"error": error.detail}, error.status_code)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, one['loc'][1:])) or 'request'}: {one['msg']}" for one in error.errors())
    return Told({"error": told[:1000]}, 422)
