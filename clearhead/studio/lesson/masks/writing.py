"""Chapter 7: clear-gpt writes a token at a time, and what one pass over a text predicts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.generation import end_tokens, generate
from clearhead.generation.prompts import window
from clearhead.ops import sampling
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

WRITER = "clear-gpt"
SHOWN = 12
STREAM = 0
"""Of the random numbers: the only text of its batch, as in `generate`."""
READ = 48
"""Tokens of a text whose predictions are all told."""
Prompt = Annotated[str, Field(max_length=2000)]
Written = Annotated[list[Annotated[int, Field(ge=0, lt=2**20)]], Field(max_length=200)]
Temperature = Annotated[float, Field(ge=0, le=3)]
TopK = Annotated[int, Field(ge=0, le=4096)]
TopP = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, le=2**31)]
MARK = "⟨start⟩"
PROMPT = "The captain of the ship"


@operation("masks.write")
def write(
    studio: Studio,
    *,
    prompt: Prompt = PROMPT,
    written: Written | None = None,
    temperature: Temperature = 0.8,
    top_k: TopK = 8,
    top_p: TopP = 0.9,
    seed: Seed = 1,
) -> Answer:
    """The next token of a text: the likeliest ones before and after the settings, and which one is drawn."""
    model = studio.models.get(WRITER)
    ids = _ids(model, prompt, written)
    with studio.models.lock(WRITER):
        logits_1V = _next(model, tuple(ids))
    own_V = logits_1V.softmax(-1)[0]
    after_V, by_k_1V, adjusted_V = _shares(logits_1V, temperature, top_k, top_p)
    number = sampling.uniform(seed, STREAM, len(ids))
    drawn = _drawn(logits_1V, temperature, top_k, top_p, number)
    best = own_V.topk(SHOWN).indices.tolist()
    shown = best if drawn in best else [*best[:-1], drawn]
    rows = [
        {
            "id": token,
            "word": model.tokenizer.pieces([token])[0],
            "before": float(own_V[token]),
            "after": float(after_V[token]),
            "score": float(logits_1V[0, token]),
            "adjusted": float(adjusted_V[token]) if after_V[token] > 0 else None,
            "kept": bool(after_V[token] > 0),
            "dropped_by": _dropped_by(token, after_V, by_k_1V, temperature),
        }
        for token in shown
    ]
    kept_V = after_V > 0
    n_begin = len(ids) - len(written or [])
    return Answer(
        data={
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "prompt": _pieces(model, ids[:n_begin]),
            "written": _pieces(model, ids[n_begin:]),
            "rows": rows,
            "drawn": {"id": drawn, "word": model.tokenizer.pieces([drawn])[0], "share": float(after_V[drawn])},
            "number": number,
            "log_sum": float(logits_1V[0].logsumexp(-1)),
            "adjusted_log_sum": float(adjusted_V.logsumexp(-1)),
            "n_by_k": int((by_k_1V > -torch.inf).sum()),
            "kept": own_V[kept_V].topk(min(SHOWN, int(kept_V.sum()))).values.tolist(),
            "n_kept": int(kept_V.sum()),
            "n_all": kept_V.numel(),
            "mass_kept": float(own_V[kept_V].sum()),
            "text": model.tokenizer.decode(ids, skip_special=True),
            "place": len(ids),
            "ends": drawn in end_tokens(model),
            "full": len(ids) >= (window(model.config) or len(ids) + 1),
        },
        python=_write_code(prompt, written, temperature, top_k, top_p, seed, shown),
        printed=(
            *(row["before"] for row in rows),
            *(row["after"] for row in rows),
            *([] if temperature == 0 else [number]),
        ),
    )


@operation("masks.ahead")
def ahead(
    studio: Studio,
    *,
    prompt: Prompt = PROMPT,
    written: Written | None = None,
    temperature: Temperature = 0.8,
    top_k: TopK = 8,
    top_p: TopP = 0.9,
    seed: Seed = 1,
    n: Annotated[int, Field(ge=1, le=40)] = 12,
) -> Iterator[Answer]:
    """The tokens that `generate` would write next with these settings, as many as were asked for."""
    model = studio.models.get(WRITER)
    ids = _ids(model, prompt, written)
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    with studio.models.lock(WRITER):
        found = generate(model, ids, max_new_tokens=n, **settings)
    yield Answer(data={"tokens": list(found.tokens), "finish_reason": found.finish_reason})


@lru_cache(maxsize=256)
def _next(model: Transformer, ids: tuple[int, ...]) -> Tensor:
    """The scores of the next token, (1, V): kept, so that a slider of the settings needs no pass."""
    with torch.inference_mode():
        scores: Tensor = model(torch.tensor([ids]), last=1)[:, -1, : model.tokenizer.vocab_size].float()
    return scores


def _shares(logits_1V: Tensor, temperature: float, top_k: int, top_p: float) -> tuple[Tensor, Tensor, Tensor]:
    """The probabilities that are drawn from, (V,); the scores after top-k alone; and those after all, (V,)."""
    by_k_1V = sampling.keep_top_k(sampling.scale_temperature(logits_1V, temperature), top_k)
    if temperature == 0:
        only_V = torch.zeros_like(logits_1V[0])
        only_V[sampling.greedy(logits_1V)] = 1.0
        return only_V, by_k_1V, only_V.log()
    adjusted_1V = sampling.adjust(logits_1V, temperature=temperature, top_k=top_k, top_p=top_p)
    return adjusted_1V.softmax(-1)[0], by_k_1V, adjusted_1V[0]


def _drawn(logits_1V: Tensor, temperature: float, top_k: int, top_p: float, number: float) -> int:
    if temperature == 0:
        return int(sampling.greedy(logits_1V))
    adjusted_1V = sampling.adjust(logits_1V, temperature=temperature, top_k=top_k, top_p=top_p)
    return int(sampling.draw(adjusted_1V, [number]))


def _dropped_by(token: int, after_V: Tensor, by_k_1V: Tensor, temperature: float) -> str | None:
    """Which setting rules a token out."""
    if after_V[token] > 0:
        return None
    if temperature == 0:
        return "temperature 0"
    return "top-k" if by_k_1V[0, token] == -torch.inf else "top-p"


def _ids(model: Transformer, prompt: str, written: list[int] | None) -> list[int]:
    ids: list[int] = [*model.tokenizer.encode(prompt), *(written or [])]
    room, size = window(model.config), model.tokenizer.vocab_size
    if not ids:
        raise UsageError("write a few words to begin with")
    if room is not None and len(ids) > room:
        raise UsageError(f"clear-gpt reads {room} tokens, and this text has {len(ids)}; shorten it")
    if any(token >= size for token in written or []):
        raise UsageError(f"clear-gpt has {size:,} tokens, numbered from 0; one that was written is none of them")
    return ids


_WRITE = """\
import torch
import clearhead
from clearhead.ops import sampling

model = clearhead.load("clear-gpt")
ids = {ids}
with torch.inference_mode():
    logits = model(torch.tensor([ids]), last=1)[:, -1]
shown = {shown}
print("before:", *(f"{{share:.9f}}" for share in logits.softmax(-1)[0, shown].tolist()))
{after}
"""
_DRAWING = """\
adjusted = sampling.adjust(logits, temperature={temperature}, top_k={top_k}, top_p={top_p})
print("after:", *(f"{{share:.9f}}" for share in adjusted.softmax(-1)[0, shown].tolist()))
number = sampling.uniform({seed}, {stream}, len(ids))  # from the seed and the place in the text
token = int(sampling.draw(adjusted, [number]))  # model.tokenizer.decode([token]) is its text
print("drawn at", number)"""
_GREEDY = """\
token = int(sampling.greedy(logits))  # at temperature 0 the likeliest; model.tokenizer.decode([token]) is its text
print("after:", *(float(one == token) for one in shown))"""


def _write_code(
    prompt: str, written: list[int] | None, temperature: float, top_k: int, top_p: float, seed: int, shown: list[int]
) -> str:
    more = f" + {written}" if written else ""
    drawing = _DRAWING.format(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stream=STREAM)
    return _WRITE.format(
        ids=f"model.tokenizer.encode({prompt!r}){more}",
        shown=shown,
        after=_GREEDY if temperature == 0 else drawing,
    )


def _pieces(model: Transformer, ids: list[int]) -> list[str]:
    """Tokens as text; one that marks the beginning or the end of a text by what it means."""
    tokenizer = model.tokenizer
    return [MARK if tokenizer.is_special(i) else tokenizer.pieces([i])[0] for i in ids]


# ---- one pass, all predictions


@operation("masks.predictions")
def predictions(
    studio: Studio,
    *,
    text: Prompt = "The people of the United States have every reason to be grateful.",
    place: Annotated[int, Field(ge=0, lt=READ)] = 4,
) -> Answer:
    """What one pass predicts behind every token of a text; and behind one of them, what the prefix alone predicts."""
    model = studio.models.get(WRITER)
    ids = tuple(model.tokenizer.encode(text))
    if not 3 <= len(ids) <= READ:
        raise UsageError(f"this text has {len(ids)} tokens; give 3 to {READ}, so that every prediction can be shown")
    place = min(place, len(ids) - 2)
    other = (*ids[: place + 1], (ids[place + 1] + 1) % model.tokenizer.vocab_size, *ids[place + 2 :])
    with studio.models.lock(WRITER):
        once_TV, changed_TV = _all(model, ids), _all(model, other)
        alone_V = _all(model, ids[: place + 1])[-1]
    targets_T = torch.tensor(ids[1:])
    logs_TV = once_TV[:-1].log_softmax(-1)
    losses = (-logs_TV[torch.arange(len(targets_T)), targets_T]).tolist()
    shares_TV = once_TV[:-1].softmax(-1)
    shares_T = shares_TV[torch.arange(len(targets_T)), targets_T].tolist()
    best = shares_TV.max(-1)
    pieces = _pieces(model, list(ids))
    rows = [
        {
            "token": pieces[t],
            "next": pieces[t + 1],
            "best": model.tokenizer.pieces([token])[0],
            "share": share,
            "loss": losses[t],
            "told": shares_T[t],
            "right": token == ids[t + 1],
        }
        for t, (share, token) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True))
    ]
    one, prefix = (float(x.softmax(-1)[ids[place + 1]]) for x in (once_TV[place], alone_V))
    mean = sum(losses) / len(losses)
    return Answer(
        data={
            "tokens": pieces,
            "rows": rows,
            "place": place,
            "mean": mean,
            "scores": [
                {"score": float(x_V[ids[place + 1]]), "log_sum": float(x_V.logsumexp(-1))}
                for x_V in (once_TV[place], alone_V)
            ],
            "n_all": once_TV.shape[-1],
            "apart": float((once_TV[place] - alone_V).abs().max()),
            "largest": float(once_TV.abs().max()),
            "one_pass": one,
            "prefix_alone": prefix,
            "difference": float((once_TV[place] - alone_V).abs().max() / once_TV.abs().max()),
            "moved_before": float((once_TV - changed_TV)[: place + 1].abs().max()),
            "moved_after": float((once_TV - changed_TV)[place + 1 :].abs().max()),
            "changed_to": model.tokenizer.pieces([other[place + 1]])[0],
        },
        python=_PREDICTIONS.format(text=text, place=place),
        printed=(*losses, mean, one, prefix),
    )


@lru_cache(maxsize=64)
def _all(model: Transformer, ids: tuple[int, ...]) -> Tensor:
    """The scores behind every token, (T, V)."""
    with torch.inference_mode():
        scores: Tensor = model(torch.tensor([ids]))[0].float()
    return scores


_PREDICTIONS = """\
import torch
import torch.nn.functional as F
import clearhead

model = clearhead.load("clear-gpt")
ids = torch.tensor(model.tokenizer.encode({text!r}))
with torch.inference_mode():
    once = model(ids[None])[0]  # one pass: scores behind every token
    alone = model(ids[None, :{place} + 1])[0, -1]  # the beginning by itself
losses = F.cross_entropy(once[:-1], ids[1:], reduction="none")
print("losses:", *(f"{{loss:.7f}}" for loss in losses.tolist()))
print("mean:", float(losses.mean()))
print("in one pass:", float(once[{place}].softmax(-1)[ids[{place} + 1]]))
print("from the beginning alone:", float(alone.softmax(-1)[ids[{place} + 1]]))
"""
