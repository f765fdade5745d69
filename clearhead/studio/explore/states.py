"""State over time: what a layer that reads token after token carries on, and how much each token writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.studio.explore.parts import Number, RunId
from clearhead.studio.explore.worked import FIRST, terms
from clearhead.studio.operations import Answer, operation
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

SHOWN = ("state", "delta", "hidden", "cell", "gates")
CARRIED = ("state", "hidden")
"""What makes a layer one that carries something: a scan's state, or a recurrent cell's hidden vector."""
CUT = 2048
"""Channels of a map that are sent."""


@operation("explore.states")
def states(
    studio: Studio,
    *,
    run: RunId,
    layer: Number = 0,
    what: Annotated[str, Field(max_length=20)] = "",
    which: Number = 0,
    query: Number = 0,
) -> Iterator[Answer]:
    """The length of every layer's state after each token, and one layer's values, a row a token.

    layer: of those that carry a state, counted from 0. what: "state" (the length over the numbers of each channel),
    "delta", "hidden", "cell" or "gates" (of which `which` says the number).
    """
    one = studio.runs.get(run)
    model = studio.models.get(one.model)
    known = catalogue(model)
    carried = [address for address in known if address.rpartition(".")[2] in CARRIED]
    if layer >= len(carried):
        raise UsageError(f"this model has {len(carried)} layers that carry a state, so there is no number {layer}")
    paths = [address.rpartition(".")[0] for address in carried]
    names = [name for name in SHOWN if f"{paths[layer]}.{name}" in known]
    what = what if what in names else names[0]
    # Of each token: the length, how many numbers it is of, and the first of them.
    lengths_LTX = torch.stack([studio.runs.reduced(run, address, _length, "length")[0] for address in carried])
    norms_LT = lengths_LTX[..., 0]
    if query >= norms_LT.shape[1]:
        raise UsageError(f"there is no token {query}; there are 0 to {norms_LT.shape[1] - 1}")
    address = f"{paths[layer]}.{what}"
    if what == "state":
        map_TX = studio.runs.reduced(run, address, _channels, "channels")[0]
    else:
        map_TX = studio.runs.exact(run, address)[0]
        if map_TX.ndim == 3:
            if which >= map_TX.shape[2]:
                raise UsageError(f"{address} has {map_TX.shape[2]} gates, so there is no number {which}")
            map_TX = map_TX[..., which]
    before = float(norms_LT[layer, query - 1]) if query else 0.0
    now = float(norms_LT[layer, query])
    row_X = map_TX[query]
    largest = int(row_X.abs().argmax())
    letters = known[address].split()
    yield Answer(
        data={
            "layers": [path.removesuffix(".mixer") for path in paths],
            "names": names,
            "what": what,
            "which": which,
            "n_gates": studio.runs.exact(run, address).shape[-1] if what == "gates" else 0,
            "channels_are": "heads" if letters[2] == "H" else "channels",
            "n_channels": map_TX.shape[1],
            "cut": map_TX.shape[1] > CUT,
            "length": now,
            "sizes": lengths_LTX[:, 0, 1].int().tolist(),
            "made": _made(lengths_LTX[layer, query]),
            "made_before": _made(lengths_LTX[layer, query - 1]) if query else None,
            "before": before,
            "signed": bool((map_TX < 0).any()),
            "largest_at": largest,
            "largest": float(row_X[largest]),
            **_mean_delta(studio, run, f"{paths[layer]}.delta", query, "delta" in names),
        },
        arrays={
            "norms": norms_LT.float(),
            "firsts": lengths_LTX[..., 2:].float().contiguous(),
            "map": map_TX[:, :CUT].float().contiguous(),
        },
        python=one.opening(model)
        + f'value = {one.look(carried[layer])}["{carried[layer]}"]\n'
        + f"print(float(value[0, {query}].float().norm()))  # the length of the state after token {query}\n",
        printed=(now,),
    )


def _mean_delta(studio: Studio, run: str, address: str, query: int, is_there: bool) -> dict[str, Any]:
    """The mean step of a token over the channels, and what it is the mean of; None where there are no steps."""
    if not is_there:
        return {"mean_delta": None, "deltas": None}
    delta_F: Tensor = studio.runs.exact(run, address)[0, query]
    return {"mean_delta": float(delta_F.double().mean()), "deltas": terms(delta_F)}


def _made(length_X: Tensor) -> dict[str, Any]:
    """What a length is the root of the sum of squares of: the first numbers, and how many there are."""
    return {"n": int(length_X[1]), "first": length_X[2:].tolist()}


def _length(value: Tensor) -> Tensor:
    """(B, T, ...) to (B, T, 2 + FIRST): the length of all that is carried on after a token, how many numbers that is,
    and the first of them.
    """
    flat_BTN = value.float().flatten(2)
    length_BT1 = torch.linalg.vector_norm(flat_BTN, dim=-1, keepdim=True)
    return torch.cat([length_BT1, torch.full_like(length_BT1, flat_BTN.shape[-1]), flat_BTN[..., :FIRST]], dim=-1)


def _channels(value: Tensor) -> Tensor:
    """(B, T, F, N) or (B, T, H, K, N) to one length a channel or head."""
    lengths: Tensor = torch.linalg.vector_norm(value.float().flatten(3), dim=-1)
    return lengths
