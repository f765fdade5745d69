"""What a model expects at a place of a text, what was drawn from, and which of its parts said so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from clearhead.lens.attribution import Attribution, attribution
from clearhead.ops.sampling import adjust, log_probs
from clearhead.studio.explore.passes import (
    Finished,
    Opened,
    check_size,
    code,
    finished,
    is_finished,
    most_tokens,
    named,
    opened,
    refuse_changed,
    token_named,
)
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.worked import log_sum, read_out_of, terms
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

RunId = Annotated[str, Field(min_length=1, max_length=128)]
Position = Annotated[int, Field(ge=-100_000, le=100_000)] | None
"""A place of the text, from its end where negative; None: its end, or its first blank."""
Hidden = Annotated[tuple[Annotated[int, Field(ge=0, le=100_000)], ...], Field(max_length=64)]
TokenOf = Annotated[int, Field(ge=0, le=10_000_000)] | Annotated[str, Field(max_length=200)] | None
SHOWN = 24
"""Parts of a logit that are shown by themselves; the rest is one more."""
MOST_CELLS = 2000
"""Cells of a table that are drawn as cells, each with what it was made from."""


@operation("explore.predict")
def predict(
    studio: Studio,
    *,
    run: RunId,
    position: Position = None,
    hidden: Hidden = (),
    n: Annotated[int, Field(ge=1, le=100)] = 20,
    temperature: Annotated[float, Field(ge=0.05, le=10)] = 1.0,
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0,
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0,
) -> Answer | Iterator[Answer]:
    """The likeliest tokens at a place: logit, probability, and what temperature, top-k and top-p make of it.

    A decoder foretells the token after `position`; a model that sees both ways says what stands at `position`, which is
    best asked with that place among the `hidden`. What sampling makes of it is told, and printed, where it acts.
    """
    how = {"temperature": temperature, "top_k": top_k, "top_p": top_p}

    def answer() -> Answer:
        asked = opened(studio, run, hidden, what="a table of next tokens")
        return _predicted(asked, asked.place(position), n, how)

    return promptly(is_finished(studio, run, hidden), answer)


def _predicted(asked: Opened, at: int, n: int, how: dict[str, Any]) -> Answer:
    found = finished(asked)
    logits_V = found.logits(at)
    p_V = logits_V.softmax(-1)
    adjusted_V = adjust(logits_V[None], **how)[0]
    after_V = adjusted_V.softmax(-1)
    acts = how != {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    best = logits_V.topk(min(n, len(logits_V))).indices
    actual = asked.actual(at)
    both = [*best.tolist(), *([] if actual is None else [actual])]
    made = read_out_of(found, at, both)
    rows = [
        {**_row(found, token, logits_V, p_V, adjusted_V, after_V), "made": one}
        for token, one in zip(both, made, strict=True)
    ]
    said = None if actual is None else {**rows.pop(), **_cost(actual, logits_V)}
    entropy = float(torch.special.entr(p_V).sum())
    data = {
        "model": asked.run.model,
        "position": at,
        "here": asked.run.tokens[at].text,
        "foretells": asked.foretells,
        "rows": rows,
        "entropy": entropy,
        "as_many": float(torch.tensor(entropy).exp()),
        "log_sum": log_sum(logits_V),
        "log_sum_after": log_sum(adjusted_V),
        "acts": acts,
        "kept": int((after_V > 0).sum()),
        "vocabulary": len(logits_V),
        "actual": said,
    }
    lines = _logits_code(asked, at)
    lines += ["p = logits.softmax(-1)"]
    if acts:
        options = ", ".join(f"{name}={value!r}" for name, value in how.items())
        lines += [f"after = adjust(logits[None], {options})[0].softmax(-1)"]
    lines += [
        f"for token in logits.topk({len(rows)}).indices:",
        f"    print(logits[token].item(), p[token].item(){', after[token].item()' if acts else ''})",
        "print(torch.special.entr(p).sum().item())",
    ]
    names = ("logit", "p", "after") if acts else ("logit", "p")
    printed = [row[name] for row in rows for name in names] + [entropy]
    if actual is not None:
        lines.append(f"print(-log_probs(logits[None], torch.tensor([{actual}])).item())")
        assert said is not None
        printed.append(said["loss"])
    needed = [*(["adjust"] if acts else []), *(["log_probs"] if actual is not None else [])]
    imports = ["import torch", *([f"from clearhead.ops.sampling import {', '.join(needed)}"] if needed else [])]
    return Answer(
        data=data,
        python=code(asked, imports, *lines),
        printed=tuple(printed),
    )


def _row(
    found: Finished, token: int, logits_V: Tensor, p_V: Tensor, adjusted_V: Tensor, after_V: Tensor
) -> dict[str, Any]:
    kept = bool(after_V[token] > 0)
    return {
        "id": token,
        "text": named(found.model, [token])[0],
        "logit": float(logits_V[token]),
        "p": float(p_V[token]),
        "adjusted": float(adjusted_V[token]) if kept else None,
        "after": float(after_V[token]),
        "kept": kept,
    }


def _cost(token: int, logits_V: Tensor) -> dict[str, Any]:
    """What the text itself says there: its place among all tokens, and what it cost."""
    above = int((logits_V > logits_V[token]).sum())
    return {
        "above": above,
        "rank": 1 + above,
        "loss": -float(log_probs(logits_V[None], torch.tensor([token]))[0]),
    }


def _logits_code(asked: Opened, at: int) -> list[str]:
    """The scores of one place, as `logits`."""
    edits = ", edits=edits" if asked.run.ablate else ""
    return [
        f'seen = clearhead.look(model, inputs, "final", positions=[{at}]{edits})',
        'logits = model.head(seen["final"], model.embed.tokens.weight)[0, 0]',
    ]


@operation("explore.losses")
def losses(studio: Studio, *, run: RunId) -> Iterator[Answer | None]:
    """Along the text: how sure the model is after each token, and what the token that follows cost it."""
    asked = opened(studio, run, what="a loss")
    most = most_tokens(asked.model, 2**28)
    check_size(asked, most, "a loss along the text")
    done = finished(asked)
    yield None
    entropy, rank, best, likeliest, log_sums, logits = [], [], [], [], [], []
    following = torch.tensor(asked.ids[1:] if asked.foretells else asked.ids, dtype=torch.long)
    for places, logits_TV in done.chunks():
        entropy.append(torch.special.entr(logits_TV.softmax(-1)).sum(-1))
        best.append(logits_TV.argmax(-1))
        log_sums.append(logits_TV.logsumexp(-1))
        likeliest.append((logits_TV.amax(-1) - log_sums[-1]).exp())
        here = following[places.start : places.stop]
        found_T1 = logits_TV[: len(here)].gather(1, here[:, None])
        rank.append(1 + (logits_TV[: len(here)] > found_T1).sum(-1))
        logits.append(found_T1[:, 0])
        yield None
    loss_T = (yield from done.losing()) if asked.foretells else torch.zeros(0)
    mean = float(loss_T.mean()) if len(loss_T) else 0.0
    python, printed = "", tuple[float, ...]()
    if len(loss_T):
        edits = ", edits=edits" if asked.run.ablate else ""
        lines = [
            f'seen = clearhead.look(model, inputs, "logits"{edits})',
            f"ids = torch.tensor({list(asked.ids)})",
            'loss = -log_probs(seen["logits"][0, :-1], ids[1:])',
            "print(loss.mean().item())",
        ]
        imports = ["import torch", "from clearhead.ops.sampling import log_probs"]
        python, printed = code(asked, imports, *lines), (mean,)
    yield Answer(
        data={
            "model": asked.run.model,
            "foretells": asked.foretells,
            "tokens": [token.text for token in asked.run.tokens],
            "dearest": int(loss_T.argmax()) if len(loss_T) else None,
            "mean": mean,
            "costs": terms(loss_T),
            "as_many": float(torch.tensor(mean).exp()),
            "best": named(asked.model, torch.cat(best).tolist()),
        },
        arrays={
            "loss": loss_T,
            "entropy": torch.cat(entropy),
            "rank": torch.cat(rank).int(),
            # A cost is the log_sum of its place less the logit of the token that came; most is the likeliest token's p.
            "log_sums": torch.cat(log_sums),
            "logits": torch.cat(logits),
            "most": torch.cat(likeliest),
        },
        python=python,
        printed=printed,
    )


@operation("explore.attribution")
def attributed(
    studio: Studio,
    *,
    run: RunId,
    position: Position = None,
    hidden: Hidden = (),
    token: TokenOf = None,
    against: TokenOf = None,
    by: Literal["layer", "head", "neuron", "position"] = "layer",
    table: bool = False,
) -> Iterator[Answer | None]:
    """The parts of a logit, or of the difference of two: they sum to it exactly.

    table: the code prints every cell of the table, and not the largest parts.
    """
    asked = opened(studio, run, hidden, what="attribution of a logit")
    refuse_changed(asked, "attribution")
    check_size(asked, most_tokens(asked.model, 2**27), "attribution")
    at = asked.place(position)
    first, second = token_named(asked, token), token_named(asked, against)
    if first is None:
        first = int(finished(asked).logits(at).argmax())
        yield None
    with studio.models.lock(asked.run.model):
        found = attribution(asked.model, asked.inputs, first, against=second, position=at, by=by)
    yield None
    yield _attributed(asked, found, (first, second), at, by, table)


def _attributed(
    asked: Opened, found: Attribution, tokens: tuple[int, int | None], at: int, by: str, table: bool
) -> Answer:
    first, second = tokens
    parts = _parts(found, by)
    logit, total = float(found.logit[0]), float(found.total[0])
    data = {
        "model": asked.run.model,
        "position": at,
        "token": {"id": first, "text": named(asked.model, [first])[0]},
        "against": None if second is None else {"id": second, "text": named(asked.model, [second])[0]},
        "by": by,
        "logit": logit,
        "total": total,
        "made": read_out_of(finished(asked), at, [first] if second is None else [first, second]),
        "error": found.error,
        "note": found.note,
        "parts": parts,
        "products": _cells_made(found) if table else [],
        "rows": found.row_labels,
        "columns": found.column_labels if by != "neuron" else [],
    }
    options = [f"position={at}", f'by="{by}"'] + ([f"against={second}"] if second is not None else [])
    lines = [
        f"found = attribution(model, inputs, {first}, {', '.join(options)})",
        "print(found.logit.item(), found.total.item())",
    ]
    if by == "layer" or table:
        lines += ["for part in found.values.flatten():", "    if not part.isnan():", "        print(part.item())"]
    else:
        lines += [f"for part in found.top({SHOWN}):", "    print(part.value)"]
    shown = [part["value"] for part in parts if part["kind"] != "rest"]
    if table:
        shown = [value for value in found.values.flatten().tolist() if value == value]
    else:
        lines += ["for part in found.others.values():", "    print(part.item())"]
    return Answer(
        data=data,
        arrays={} if by == "neuron" else {"values": found.values},
        python=code(asked, ["from clearhead.lens import attribution"], *lines),
        printed=(logit, total, *shown),
    )


def _parts(found: Attribution, by: str) -> list[dict[str, Any]]:
    """Parts with their names: all of a layer's, else the largest, and what is left in one."""
    if by == "layer":
        names = [f"{row}, {_said(column)}" for row in found.row_labels for column in found.column_labels]
        every = zip(names, found.values.flatten().tolist(), _cells_made(found), strict=True)
        shown = [{"name": n, "value": v, "kind": "part", "made": made} for n, v, made in every if v == v]
        left = None
    else:
        top = found.top(SHOWN)
        rows, columns = ({label: i for i, label in enumerate(one)} for one in (found.row_labels, found.column_labels))
        shown = [
            {
                "name": _cell(cell.row, cell.column, by),
                "value": cell.value,
                "kind": "part",
                # Tokens may be called the same, so that their names say no column.
                "made": None if by == "position" else _made(found, (rows[cell.row], columns[cell.column])),
            }
            for cell in top
        ]
        left = float(found.values.nansum()) - sum(cell.value for cell in top)
        if int((~found.values.isnan()).sum()) <= SHOWN:
            left = None
    others = [
        {"name": _said(name), "value": float(value), "kind": "other", "made": _made(found, name)}
        for name, value in found.others.items()
    ]
    rest = [] if left is None else [{"name": "all smaller parts", "value": left, "kind": "rest", "made": None}]
    return [*shown, *others, *rest]


def _made(found: Attribution, part: tuple[int, int] | str) -> dict[str, Any] | None:
    """The dot product that a part is."""
    product = found.products.get(part)
    return None if product is None else {"pairs": product.pairs.tolist(), "n": product.n}


def _cells_made(found: Attribution) -> list[dict[str, Any] | None]:
    """The same of every cell, row by row; of a large table, nothing."""
    rows, columns = found.values.shape
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    return [_made(found, cell) for cell in cells] if len(cells) <= MOST_CELLS else [None] * len(cells)


def _cell(row: str, column: str, by: str) -> str:
    if by == "position":
        return f"{_said(row)} from {column}"
    what = "head" if by == "head" else "neuron"
    return (
        f"{row}, cross-attention head {column.split()[1]}"
        if column.startswith("cross")
        else f"{row}, {what} {column.split()[-1]}"
    )


WORDS = {"mixer": "attention", "cross": "cross-attention", "ffn": "MLP"}


def _said(label: str) -> str:
    """A part in words: "layer 3 ffn" as "layer 3, MLP"."""
    words = label.split(" ")
    if words[0] == "layer" and len(words) > 2:
        return " ".join([f"layer {words[1]},", *(WORDS.get(word, word) for word in words[2:])])
    return WORDS.get(label, label)
