"""What a page asks about runs, checked, and how a run is told: over HTTP in the Studio, by messages in a notebook."""

from __future__ import annotations

from threading import Event
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.coding import Code
from clearhead.studio.explore.given import MAX_CHARACTERS, MAX_TOKENS, Given, Read, Token
from clearhead.studio.explore.parts import RunId
from clearhead.studio.explore.runs import Run, Runs
from clearhead.studio.explore.tensors import Piece, Wanted, piece

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Name = Annotated[str, Field(min_length=1, max_length=100)]
Place = Annotated[int, Field(ge=0, le=1_000_000)]
Address = Annotated[str, Field(min_length=1, max_length=200)]
Choice = Annotated[str, Field(max_length=2000)]


class AblationAsked(BaseModel):
    """See `Ablation`. `head` is short for one of `heads`."""

    model_config = ConfigDict(extra="forbid")
    layer: Place
    part: Literal["mixer", "cross", "ffn", "block"] = "mixer"
    stack: Annotated[str, Field(max_length=20)] = ""
    head: Place | None = None
    heads: Annotated[list[Place], Field(max_length=1024)] = []
    queries: Annotated[list[Place], Field(max_length=4096)] = []
    keys: Annotated[list[Place], Field(max_length=4096)] = []
    mode: Literal["zero", "mean"] = "zero"

    def ablation(self) -> Ablation:
        heads = self.heads if self.head is None else [*self.heads, self.head]
        return Ablation(
            layer=self.layer,
            part=self.part,
            stack=self.stack,
            heads=tuple(heads),
            queries=tuple(self.queries),
            keys=tuple(self.keys),
            mode=self.mode,
        )


class RunAsked(BaseModel):
    """What is to be run."""

    model_config = ConfigDict(extra="forbid")
    model: Name
    text: Text | None = None
    ids: Annotated[list[Place], Field(max_length=MAX_TOKENS)] | None = None
    source: Text | None = None
    picture: Name | None = None
    sound: Name | None = None
    capture: Annotated[list[Address], Field(max_length=64)] = []
    ablate: Annotated[list[AblationAsked], Field(max_length=256)] = []

    def given(self) -> Given:
        return Given(
            text=self.text,
            ids=None if self.ids is None else tuple(self.ids),
            source=self.source,
            picture=self.picture,
            sound=self.sound,
        )

    def make(self, runs: Runs, cancelled: Event) -> Run:
        """The run. Raises what `Runs.make` raises."""
        ablate = [one.ablation() for one in self.ablate]
        return runs.make(self.model, self.given(), capture=self.capture, ablate=ablate, cancelled=cancelled)


class PartAsked(BaseModel):
    """Part of what stands at an address of a run: see `Wanted`."""

    model_config = ConfigDict(extra="forbid")
    run: RunId
    name: Address
    layers: Choice = ""
    heads: Choice = ""
    rows: Choice = ""
    cols: Choice = ""
    most: bool = False
    pool: Annotated[int, Field(ge=1, le=4096)] = 1
    code: Annotated[Code, Field(alias="as")] = "f32"

    def find(self, runs: Runs, cancelled: Event) -> Piece:
        """The part. Raises what `piece` and `Runs.get` raise."""
        wanted = Wanted(
            layers=self.layers,
            heads=self.heads,
            rows=self.rows,
            cols=self.cols,
            most=self.most,
            pool=self.pool,
            code=self.code,
        )
        return piece(runs, runs.get(self.run), self.name, wanted, cancelled)


def told(run: Run) -> dict[str, Any]:
    """A run as the page has it."""
    given = run.given
    return {
        "run": run.id,
        "model": run.model,
        "text": given.text,
        "source": given.source,
        "picture": given.picture,
        "sound": given.sound,
        "tokens": [_token(token) for token in run.tokens],
        "sources": [_token(token) for token in run.sources],
        "reads": [_read(one) for one in run.reads],
        "ms": run.spent.ms,
        "peak_bytes": run.spent.peak_bytes,
        "bytes": run.n_bytes,
        "ablate": [
            {
                "layer": one.layer,
                "part": one.part,
                "stack": one.stack,
                "heads": list(one.heads),
                "queries": list(one.queries),
                "keys": list(one.keys),
                "mode": one.mode,
            }
            for one in run.ablate
        ],
        "tensors": [
            {"name": name, "shape": list(value.shape[1:]), "dtype": dtype, "bytes": value.nbytes}
            for kept, dtype in ((run.values, "f32"), (run.codes, "u8"))
            for name, value in list(kept.items())
        ],
    }


def _read(one: Read) -> dict[str, Any]:
    return {
        "stack": one.stack,
        "kind": one.kind,
        "n": len(one.tokens),
        "grid": None if one.grid is None else list(one.grid),
        "prefix": one.n_prefix,
    }


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "start": token.start, "end": token.end}
