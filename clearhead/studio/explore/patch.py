"""Values of one run put into another: which of them carry the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens import at as limited
from clearhead.lens import patch as patched
from clearhead.lens.edit import edit as edited
from clearhead.lens.metrics import logit_difference
from clearhead.lens.pairs import two_runs
from clearhead.lens.patching import AXES, Sweep, patching_by_layer
from clearhead.lens.record import look
from clearhead.studio.explore.passes import (
    Finished,
    Opened,
    Stream,
    check_size,
    code,
    finished,
    mask_of,
    most_tokens,
    named,
    opened,
    refuse_changed,
    token_named,
)
from clearhead.studio.explore.predict import Position, RunId, TokenOf
from clearhead.studio.explore.worked import log_sum
from clearhead.studio.operations import Answer, operation
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

Site = Literal["resid_pre", "resid_mid", "resid_post", "mixer.out", "cross.out", "ffn.out", "mixer.z", "cross.z"]


@dataclass(frozen=True)
class Pair:
    """A clean run and a corrupted one of the same model, and the two answers that tell them apart."""

    clean: Opened
    corrupted: Opened
    answer: int
    other: int
    at: int
    """Where the answer stands: after the last token, or in a blank."""

    @property
    def ends(self) -> tuple[Finished, Finished]:
        return finished(self.clean), finished(self.corrupted)


def _pair(studio: Studio, clean: str, corrupted: str, answer: TokenOf, other: TokenOf, position: Position) -> Pair:
    """Both runs, held to one length. Without answers: what the model finds likeliest where they stand."""
    one, two = (opened(studio, run, what="patching") for run in (clean, corrupted))
    if one.run.model != two.run.model:
        raise UsageError("both texts are to be read by one model; open them with the same one")
    for asked in (one, two):
        refuse_changed(asked, "patching")
    two_runs(one.model, one.inputs, two.inputs)
    check_size(one, most_tokens(one.model, 2**26), "patching")
    at = one.place(position)
    if not one.foretells and one.ids[at] != mask_of(one.model):
        raise UsageError("this model fills blanks; hide the word that is asked about behind [MASK] in both texts")
    found = token_named(one, answer), token_named(two, other)
    first = int(finished(one).logits(at).argmax()) if found[0] is None else found[0]
    second = found[1]
    if second is None:
        best = finished(two).logits(at).topk(2).indices.tolist()
        second = best[0] if best[0] != first else best[1]
    if first == second:
        raise UsageError("the two answers are the same token, so their difference is always 0; choose another")
    return Pair(one, two, first, second, at)


@operation("explore.patch-sweep")
def sweep(
    studio: Studio,
    *,
    run: RunId,
    other_run: RunId,
    position: Position = None,
    site: Site = "resid_pre",
    over: Literal["position", "head"] = "position",
    noising: bool = False,
    token: TokenOf = None,
    against: TokenOf = None,
) -> Iterator[Answer]:
    """One place or one head of one layer after another taken from the clean run: how much of the answer comes with it.

    run: the clean text. other_run: the corrupted one, as long. The number is the logit of `token` less that of
    `against` at `position`, on a scale from the corrupted text (0) to the clean one (1). An answer a layer.
    """
    pair = _pair(studio, run, other_run, token, against, position)
    _check_site(pair.clean, site, over)
    model = pair.clean.model
    metric = logit_difference(model, pair.answer, pair.other, pair.at)
    found = patching_by_layer(
        model, pair.clean.inputs, pair.corrupted.inputs, metric, site=site, over=over, noising=noising
    )
    n_rows = len(model.layers)
    while True:
        with studio.models.lock(pair.clean.run.model):
            table = next(found, None)
        if table is None:
            return
        yield _sweep_answer(pair, table, n_rows, noising)


def _check_site(asked: Opened, site: str, over: str) -> None:
    """Refuse a place that the model has not, or that has no such axis, in words of the page."""
    letters = next(
        (shape.split() for address, shape in catalogue(asked.model).items() if address.endswith(f".{site}")), None
    )
    if letters is None:
        raise UsageError(f"this model has no {site}; choose another part to patch")
    if not set(letters) & set(AXES[over]):
        remedy = "patch it place by place" if over == "head" else "patch it head by head"
        raise UsageError(f"{site} is not kept by {over}; {remedy}, or choose another part")


def _sweep_answer(pair: Pair, table: Sweep, n_rows: int, noising: bool) -> Answer:
    values = table.values
    there = ~values.isnan()
    place = int(values.nan_to_num(nan=-torch.inf).flatten().argmax())
    if noising:
        place = int(values.nan_to_num(nan=torch.inf).flatten().argmin())
    row, column = divmod(place, values.shape[1])
    # A share is (m - corrupted) / (clean - corrupted): the difference m of each patched run, of which it was made.
    measured = table.scale.corrupted + values * (table.scale.clean - table.scale.corrupted)
    data: dict[str, Any] = {
        "done": len(table.row_labels),
        "of": n_rows,
        "rows": table.row_labels,
        "columns": table.column_labels,
        "site": table.site,
        "over": table.over,
        "noising": noising,
        "clean": table.scale.clean,
        "corrupted": table.scale.corrupted,
        "at": pair.at,
        "here": pair.clean.run.tokens[pair.at].text,
        "foretells": pair.clean.foretells,
        "token": {"id": pair.answer, "text": named(pair.clean.model, [pair.answer])[0]},
        "against": {"id": pair.other, "text": named(pair.clean.model, [pair.other])[0]},
        "strongest": {
            "row": row,
            "column": column,
            "layer": table.row_labels[row],
            "place": table.column_labels[column],
            "value": float(values[row, column]),
            "measured": float(measured[row, column]),
        },
        "logits": [_both_logits(pair, one.logits(pair.at)) for one in pair.ends],
    }
    arrays = {
        "values": values.nan_to_num(nan=0.0).float(),
        "there": there.to(torch.uint8),
        "measured": measured.nan_to_num(nan=0.0).float(),
    }
    if len(table.row_labels) < n_rows and not _is_last(pair, table):
        return Answer(data=data, arrays=arrays)
    options = [f'site="{table.site}"', f'over="{table.over}"'] + (["noising=True"] if noising else [])
    lines = [
        *_corrupted_code(pair),
        f"metric = logit_difference(model, {pair.answer}, {pair.other}, {pair.at})",
        f"found = patching(model, inputs, corrupted, metric, {', '.join(options)})",
        "print(found.scale.clean, found.scale.corrupted)",
        f"print(found.values[{row}, {column}].item())",
    ]
    imports = ["from clearhead.lens import logit_difference, patching"]
    printed = (table.scale.clean, table.scale.corrupted, float(values[row, column]))
    return Answer(data=data, arrays=arrays, python=code(pair.clean, imports, *lines), printed=printed)


def _both_logits(pair: Pair, logits_V: Tensor) -> list[float]:
    """Of the two answers, whose difference is measured."""
    return [float(logits_V[pair.answer]), float(logits_V[pair.other])]


def _is_last(pair: Pair, table: Sweep) -> bool:
    """Whether the layers that are left lack the place, so that no more rows come."""
    layer = int(table.row_labels[-1].split()[1])
    known = catalogue(pair.clean.model)
    return not any(f"layers.{later}.{table.site}" in known for later in range(layer + 1, len(pair.clean.model.layers)))


def _corrupted_code(pair: Pair) -> list[str]:
    """The corrupted run's input, as the clean one's is written."""
    body = pair.corrupted.run.opening(pair.corrupted.model).partition("\n\n")[2]
    line = next(line for line in body.splitlines() if line.startswith("inputs = "))
    return [line.replace("inputs = ", "corrupted = ", 1)]


@dataclass(frozen=True, kw_only=True)
class Place:
    """What is put into the other run: a site of one layer, at some positions, or of some heads; none named: all."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    layer: Annotated[int, Field(ge=0, le=10_000)] = 0
    site: Site = "resid_pre"
    positions: Annotated[tuple[Annotated[int, Field(ge=0, le=100_000)], ...], Field(max_length=4096)] = ()
    heads: Annotated[tuple[Annotated[int, Field(ge=0, le=10_000)], ...], Field(max_length=1024)] = ()

    @property
    def address(self) -> str:
        return f"layers.{self.layer}.{self.site}"

    @property
    def limits(self) -> dict[str, list[int]]:
        """What `clearhead.lens.at` takes."""
        return {name: list(some) for name, some in (("positions", self.positions), ("heads", self.heads)) if some}


FIRST = Place()


@operation("explore.patch")
def patch(
    studio: Studio,
    *,
    run: RunId,
    other_run: RunId,
    position: Position = None,
    place: Place = FIRST,
    noising: bool = False,
    token: TokenOf = None,
    against: TokenOf = None,
    n: Annotated[int, Field(ge=1, le=50)] = 6,
) -> Iterator[Answer | None]:
    """One patch: next tokens of the clean text, of the corrupted one, and of that with the clean one's values in it."""
    pair = _pair(studio, run, other_run, token, against, position)
    if place.address not in catalogue(pair.clean.model):
        raise UsageError(f"layer {place.layer} of this model has no {place.site}; choose another layer or part")
    yield None
    base, donor = (pair.clean, pair.corrupted) if noising else (pair.corrupted, pair.clean)
    with studio.models.lock(base.run.model):
        seen = look(base.model, {**donor.inputs, "read": False}, place.address)
        edit = limited(patched(seen), **place.limits) if place.limits else patched(seen)
        stream_BTD = edited(base.model, {**base.inputs, "read": False}, {place.address: edit})
    changed = Finished(base.model, base.ids, Stream(stream_BTD))
    three = [one.logits(pair.at) for one in (*pair.ends, changed)]
    logits = [_both_logits(pair, logits_V) for logits_V in three]
    metric = [first - second for first, second in logits]
    apart = metric[0] - metric[1]
    data = {
        **asdict(place),
        "address": place.address,
        "names": [pair.clean.run.tokens[i].text for i in place.positions if i < len(pair.clean.run.tokens)],
        "noising": noising,
        **_three_sides(pair, three, n),
        "token": {"id": pair.answer, "text": named(base.model, [pair.answer])[0]},
        "against": {"id": pair.other, "text": named(base.model, [pair.other])[0]},
        "clean": metric[0],
        "corrupted": metric[1],
        "patched": metric[2],
        "logits": logits,
        "share": (metric[2] - metric[1]) / apart if abs(apart) > 1e-9 else 0.0,
    }
    imports = [f"from clearhead.lens import {'at, patch' if place.limits else 'patch'}"]
    python = code(pair.clean, imports, *_patch_code(pair, place, noising))
    yield Answer(data=data, python=python, printed=(metric[2],))


def _three_sides(pair: Pair, three: Sequence[Tensor], n: int) -> dict[str, Any]:
    """The likeliest tokens of any of the clean, the corrupted and the patched run, with what each gives them."""
    model = pair.clean.model
    p = [logits_V.softmax(-1) for logits_V in three]
    best = [i for logits_V in three for i in logits_V.topk(min(n, len(logits_V))).indices.tolist()]
    ids = list(dict.fromkeys([pair.answer, pair.other, *best]))
    sides = ("clean", "corrupted", "patched")
    rows = [
        {
            "id": i,
            "text": text,
            **{side: float(p_V[i]) for side, p_V in zip(sides, p, strict=True)},
            "logits": [float(logits_V[i]) for logits_V in three],
        }
        for i, text in zip(ids, named(model, ids), strict=True)
    ]
    leading = [int(p_V.argmax()) for p_V in p]
    names = named(model, leading)
    return {
        "rows": rows,
        "log_sums": [log_sum(logits_V) for logits_V in three],
        "best": [
            {"id": i, "text": text, "p": float(p_V[i]), "logit": float(logits_V[i])}
            for i, text, p_V, logits_V in zip(leading, names, p, three, strict=True)
        ],
    }


def _patch_code(pair: Pair, place: Place, noising: bool) -> list[str]:
    donor, base = ("corrupted", "inputs") if noising else ("inputs", "corrupted")
    limits = ", ".join(f"{name}={some}" for name, some in place.limits.items())
    return [
        *_corrupted_code(pair),
        f'seen = clearhead.look(model, {donor}, "{place.address}")',
        f'edits = {{"{place.address}": {f"at(patch(seen), {limits})" if limits else "patch(seen)"}}}',
        f'final = clearhead.look(model, {base}, "final", positions=[{pair.at}], edits=edits)["final"]',
        "logits = model.head(final, model.embed.tokens.weight)[0, 0]",
        f"print((logits[{pair.answer}] - logits[{pair.other}]).item())",
    ]
