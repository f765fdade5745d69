"""Parts of a model switched off: what it then says, beside what it says as it is; and each head in its turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.given import stacks_of
from clearhead.studio.explore.passes import (
    Finished,
    Opened,
    check_size,
    code,
    finished,
    most_tokens,
    opened,
    token_named,
)
from clearhead.studio.explore.predict import Hidden, Position, RunId, TokenOf
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.worked import log_sum, read_out_of, terms
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

Metric = Literal["logit", "difference", "loss"]


@operation("explore.ablate")
def ablate(
    studio: Studio,
    *,
    run: RunId,
    off: Annotated[tuple[Ablation, ...], Field(max_length=256)] = (),
    position: Position = None,
    hidden: Hidden = (),
    n: Annotated[int, Field(ge=1, le=50)] = 8,
    token: TokenOf = None,
) -> Iterator[Answer | None]:
    """A text read by the model as it is and with `off` switched off: next tokens, logits, and losses along the text."""
    asked = opened(studio, run, hidden, what="comparing next tokens", labels=True)
    if not asked.labels:
        check_size(asked, most_tokens(asked.model, 2**28), "a comparison")
    at = asked.place(position)
    clean = finished(asked)
    yield None
    changed = finished(asked, off)
    yield None
    before_V, after_V = clean.logits(at), changed.logits(at)
    ids = _compared(before_V, after_V, n, token_named(asked, token))
    rows = _rows(asked, ids, before_V, after_V)
    first, then = (_best(asked, logits_V) for logits_V in (before_V, after_V))
    data: dict[str, Any] = {
        "model": asked.run.model,
        "position": at,
        "here": "" if asked.labels else asked.run.tokens[at].text,
        "foretells": asked.foretells,
        "rows": rows,
        "first": first,
        "then": then,
        "first_then": float(after_V.softmax(-1)[first["id"]]),
        "first_then_logit": float(after_V[first["id"]]),
        "log_sums": [log_sum(before_V), log_sum(after_V)],
        "off": [asdict(one) for one in off],
        "labels": asked.labels,
    }
    arrays: dict[str, Any] = {}
    if asked.foretells and len(asked.ids) > 1:
        if len(asked.ids) <= most_tokens(asked.model, 2**26):
            loss_T = yield from clean.losing()
            after_T = yield from changed.losing()
            arrays = {"loss": loss_T, "loss_after": after_T, "loss_change": after_T - loss_T}
            arrays |= {"p": loss_T.neg().exp(), "p_after": after_T.neg().exp()}
            data |= {"loss": float(loss_T.mean()), "loss_after": float(after_T.mean())}
            data["costs"] = [terms(loss_T), terms(after_T)]
            data["loss_change"] = data["loss_after"] - data["loss"]
        else:
            data["no_loss"] = "The loss along the text is left out: the text is long for a vocabulary of this size."
    sides = (("logit", "before"), ("logit_after", "after"))
    yield Answer(
        data=data,
        arrays=arrays,
        python=code(asked, [], *_both_read(asked, at, ids, bool(off)), ablate=off),
        printed=tuple(row[name] for side in sides for row in rows for name in side),
    )


def _compared(before_V: Tensor, after_V: Tensor, n: int, wanted: int | None) -> list[int]:
    """The tokens that either side finds likeliest, and the one that is asked about; the likeliest before come first."""
    n = min(n, len(before_V))
    ids = {*before_V.topk(n).indices.tolist(), *after_V.topk(n).indices.tolist(), *([] if wanted is None else [wanted])}
    return sorted(ids, key=lambda i: (-float(before_V[i]), i))


def _rows(asked: Opened, ids: Sequence[int], before_V: Tensor, after_V: Tensor) -> list[dict[str, Any]]:
    p_before_V, p_after_V = before_V.softmax(-1), after_V.softmax(-1)
    return [
        {
            "id": i,
            "text": text,
            "before": float(p_before_V[i]),
            "after": float(p_after_V[i]),
            "logit": float(before_V[i]),
            "logit_after": float(after_V[i]),
            "change": float(after_V[i]) - float(before_V[i]),
            "rank": 1 + int((before_V > before_V[i]).sum()),
            "rank_after": 1 + int((after_V > after_V[i]).sum()),
        }
        for i, text in zip(ids, asked.names(ids), strict=True)
    ]


def _best(asked: Opened, logits_V: Tensor) -> dict[str, Any]:
    best = int(logits_V.argmax())
    return {
        "id": best,
        "text": asked.names([best])[0],
        "p": float(logits_V.softmax(-1)[best]),
        "logit": float(logits_V[best]),
    }


def _both_read(asked: Opened, at: int, ids: Sequence[int], changed: bool) -> list[str]:
    """Both passes in Python: of each, logit and probability of some tokens are printed."""
    if asked.labels:
        lines = [
            "before = clearhead.edit(model, inputs, {})",
            f"after = clearhead.edit(model, inputs, {'edits' if changed else '{}'})",
            "for scores in (before, after):",
            "    logits = scores[0].float()",
        ]
    else:
        edits = "edits=edits, " if changed else ""
        lines = [
            f'where = {{"positions": [{at}]}}',
            'before = clearhead.look(model, inputs, "final", **where)["final"]',
            f'after = clearhead.look(model, inputs, "final", {edits}**where)["final"]',
            "for stream in (before, after):",
            "    logits = model.head(stream, model.embed.tokens.weight)[0, 0]",
        ]
    return [
        *lines,
        "    p = logits.softmax(-1)",
        f"    for token in {list(ids)}:",
        "        print(logits[token].item(), p[token].item())",
    ]


@operation("explore.switches")
def switches(
    studio: Studio, *, model: Annotated[str, Field(min_length=1, max_length=500)]
) -> Answer | Iterator[Answer]:
    """What there is to switch off: of each stack, of each layer, how many heads, and whether there is an MLP; and how
    many passes it takes to switch off each of a stack's heads and MLPs in its turn.
    """
    return promptly(studio.models.holds(model), lambda: _switches(studio.models.get(model)))


def _switches(model: Transformer) -> Answer:
    found = []
    for path, stack in stacks_of(model).items():
        layers = [
            {
                "layer": layer,
                "heads": _n_heads(block.mixer),
                "crossed": _n_heads(block.cross),
                "attends": _n_heads(block.mixer) > 0,
                "ffn": block.ffn is not None,
            }
            for layer, block in enumerate(stack.layers)
        ]
        passes = sum(layer["heads"] + layer["crossed"] + layer["ffn"] for layer in layers)
        found.append({"stack": path, "layers": layers, "passes": passes})
    return Answer(data={"stacks": found})


def _n_heads(part: Any) -> int:
    """Heads that can be switched off one by one."""
    return int(part.config.n_heads) if part is not None and "z" in part.sites else 0


@operation("explore.ablate-grid")
def grid(
    studio: Studio,
    *,
    run: RunId,
    position: Position = None,
    hidden: Hidden = (),
    metric: Metric = "logit",
    token: TokenOf = None,
    against: TokenOf = None,
    mode: Literal["zero", "mean"] = "zero",
    stack: Literal["", "encoder"] = "",
) -> Iterator[Answer | None]:
    """Each head switched off in its turn, and then the MLP of its layer: how a number changes. An answer a layer.

    metric: the logit of `token` at `position`; that less the logit of `against`; or the mean loss along the text.
    """
    asked = opened(studio, run, hidden, what="a sweep over heads", labels=True)
    if metric == "loss" and not asked.foretells:
        raise UsageError("this model foretells no next token, so what it reads has no loss; take a logit")
    if not asked.labels:
        check_size(asked, most_tokens(asked.model, 2**25 if metric == "loss" else 2**28), "a sweep")
    at = asked.place(position)
    clean = finished(asked)
    first, second = token_named(asked, token), token_named(asked, against)
    if metric != "loss" and first is None:
        first = int(clean.logits(at).argmax())
    if metric == "difference" and second is None:
        second = int(clean.logits(at).topk(2).indices[1])
    if metric == "difference" and first == second:
        raise UsageError("the two answers are the same token, so their difference is always 0; choose another")
    measure = _Measure(metric, at, first, second)
    base = measure(clean)
    made = measure.made(clean)
    layers = _swept(asked, stack)
    widest = max(len(parts) for parts in layers)
    values = torch.full((len(layers), widest), torch.nan, dtype=torch.float64)
    for layer, parts in enumerate(layers):
        for column, part in enumerate(parts):
            if part is not None:
                one = Ablation(layer=layer, stack=stack, mode=mode, **part)
                values[layer, column] = measure(finished(asked, (one,), keep=False)) - base
                yield None
        yield _grid_answer(asked, values, layers, layer + 1, measure, (base, made), mode, stack)


class _Measure:
    """One number of a pass."""

    def __init__(self, metric: Metric, at: int, first: int | None, second: int | None) -> None:
        self.metric, self.at, self.first, self.second = metric, at, first, second

    def __call__(self, found: Finished) -> float:
        if self.metric == "loss":
            return float(found.losses().mean())
        logits_V = found.logits(self.at)
        assert self.first is not None
        logit = float(logits_V[self.first])
        return logit if self.metric == "logit" else logit - float(logits_V[self.second])

    def made(self, found: Finished) -> dict[str, Any]:
        """What the number of a pass is made from: the losses that it is the mean of, or the logits."""
        if self.metric == "loss":
            return {"costs": terms(found.losses())}
        logits_V = found.logits(self.at)
        ids = [i for i in (self.first, self.second) if i is not None]
        logits = [float(logits_V[i]) for i in ids[: 1 if self.metric == "logit" else 2]]
        return {"logits": logits, "made": read_out_of(found, self.at, ids[:1])[0]}

    def lines(self, asked: Opened) -> list[str]:
        """The same of `edits`, as the body of a function."""
        if self.metric == "loss":
            return [
                "    logits = clearhead.edit(model, inputs, edits)",
                f"    ids = torch.tensor({list(asked.ids)})",
                "    return -log_probs(logits[0, :-1], ids[1:]).mean().item()",
            ]
        less = f" - logits[{self.second}].item()" if self.metric == "difference" else ""
        if asked.labels:
            return [
                "    logits = clearhead.edit(model, inputs, edits)[0].float()",
                f"    return logits[{self.first}].item(){less}",
            ]
        return [
            f'    seen = clearhead.look(model, inputs, "final", positions=[{self.at}], edits=edits)',
            '    logits = model.head(seen["final"], model.embed.tokens.weight)[0, 0]',
            f"    return logits[{self.first}].item(){less}",
        ]


def _swept(asked: Opened, stack: str) -> list[list[dict[str, Any] | None]]:
    """What is switched off in each layer, a column each: its heads, and last its MLP."""
    stacks = stacks_of(asked.model)
    if stack not in stacks:
        raise UsageError("this model has no encoder beside its decoder")
    rows: list[list[dict[str, Any] | None]] = []
    for block in stacks[stack].layers:
        heads = {part: _n_heads(getattr(block, part)) for part in ("mixer", "cross")}
        row: list[dict[str, Any] | None] = [
            {"part": part, "heads": (head,)} for part, n_heads in heads.items() for head in range(n_heads)
        ]
        rows.append([*row, {"part": "ffn"} if block.ffn is not None else None])
    widest = max(map(len, rows))
    if widest == 1 and all(row == [None] for row in rows):
        raise UsageError("this model has neither heads nor MLPs to switch off")
    # The MLP stands in the last column of every layer.
    return [[*row[:-1], *[None] * (widest - len(row)), row[-1]] for row in rows]


def _grid_answer(
    asked: Opened,
    values: Tensor,
    layers: Sequence[Sequence[dict[str, Any] | None]],
    done: int,
    measure: _Measure,
    clean: tuple[float, dict[str, Any]],
    mode: str,
    stack: str,
) -> Answer:
    base, made = clean
    widest = len(layers[0])
    fullest = max(layers, key=lambda row: sum(part is not None for part in row))
    columns = [_column(part, n, widest) for n, part in enumerate(fullest)]
    there = ~values.isnan()
    data: dict[str, Any] = {
        "done": done,
        "of": len(layers),
        "metric": measure.metric,
        "position": measure.at,
        "token": None if measure.first is None else {"id": measure.first, "text": asked.names([measure.first])[0]},
        "against": None
        if measure.metric != "difference" or measure.second is None
        else {"id": measure.second, "text": asked.names([measure.second])[0]},
        "base": base,
        "base_made": made,
        "rows": [f"layer {layer}" for layer in range(len(layers))],
        "columns": columns,
        "largest": None,
    }
    arrays = {
        "values": values.nan_to_num(nan=0.0).float(),
        "there": there.to(torch.uint8),
        # What was measured with that part off, of which the change was made.
        "measured": (values + base).nan_to_num(nan=0.0).float(),
    }
    if not bool(there.any()):
        return Answer(data=data, arrays=arrays)
    flat = values.abs().nan_to_num(nan=-1.0).flatten()
    place = int(flat.argmax())
    layer, column = divmod(place, widest)
    part = layers[layer][column]
    assert part is not None
    change = float(values[layer, column])
    name = f"{'the ' if columns[column] == 'MLP' else ''}{columns[column]} of layer {layer}"
    data["largest"] = {"layer": layer, "column": column, "name": name, "change": change, "measured": base + change}
    if done < len(layers):
        return Answer(data=data, arrays=arrays)
    one = Ablation(layer=layer, stack=stack, mode=mode, **part)  # type: ignore[arg-type]
    lines = [
        "",
        "def measure(edits):",
        *measure.lines(asked),
        "",
        "print(measure([]))",
        "print(measure(edits) - measure([]))",
    ]
    imports = ["import torch", "from clearhead.ops.sampling import log_probs"] if measure.metric == "loss" else []
    return Answer(data=data, arrays=arrays, python=code(asked, imports, *lines, ablate=(one,)), printed=(base, change))


def _column(part: dict[str, Any] | None, n: int, widest: int) -> str:
    if n == widest - 1:
        return "MLP"
    if part is None or "heads" not in part:
        return f"head {n}"
    return f"{'cross-attention ' if part['part'] == 'cross' else ''}head {part['heads'][0]}"
