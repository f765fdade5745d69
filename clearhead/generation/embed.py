"""`embed`: texts to vectors, so that texts that mean alike lie close to each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import AlibiConfig, AttentionConfig, RelativeBiasConfig, TransformerConfig, TwoTowersConfig
from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Pooling = Literal["mean", "first", "last", "head"]
BATCH_TOKENS = 1024
"""How many slots are filled at a time. What a layer makes of so many tokens stays in a processor's cache: 1,000
sentences by MiniLM, two threads: 1.9 s, and 2.6 s with 4,096."""
MODULES, SENTENCE = "modules.json", "sentence_bert_config.json"
MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_lasttoken": "last"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a model's texts become vectors."""

    pooling: Pooling
    limit: int | None
    """The most tokens of a text that are read."""


def embed(
    model: Transformer,
    texts: str | Sequence[str],
    *,
    pooling: Pooling | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], Any] | None = None,
) -> Tensor:
    """Unit vectors of texts: (N, D) in float32 and the texts' order, or (D,) of a single text.

    Texts of like length are read together, one behind another in one row, so that there is no padding; in rows of their
    own where a layer can't tell them apart at no cost. One that is longer than the model's context is read as far as
    that goes. One without anything to read gets zeros, which are near to nothing.

    pooling: the mean of what the model makes of the tokens, its first or last token, or its pooling head; None is what
    the checkpoint says (in its sentence-transformers files), or else the mean.
    progress: told after each batch how many texts it had.

    Raises:
        ClearheadError: the model has no tokenizer, reads no tokens, or lacks the head that is asked for.
    """
    plan = embedding_plan(model, pooling)
    many = [texts] if isinstance(texts, str) else list(texts)
    rows = encoded(model, many, plan.limit)[0]
    width = model.config.d_model if plan.pooling != "head" else _pool_width(model)
    vectors_ND = torch.zeros(len(many), width)
    with torch.no_grad():
        in_one_row = plan.pooling != "head" and tells_documents_apart(model.config)
        for indices in batches(rows, batch_tokens, padded=not in_one_row):
            some = [rows[i] for i in indices]
            if plan.pooling == "head":
                pooled_ND: Tensor = model(**_side_by_side(model, some)).pooled
            else:
                pooled_ND = _pooled((_stream if in_one_row else _stream_of_padded)(model, some), some, plan.pooling)
            vectors_ND[indices] = pooled_ND.float().cpu()
            if progress is not None:
                progress(len(indices))
    vectors_ND = F.normalize(vectors_ND, dim=-1)
    return vectors_ND[0] if isinstance(texts, str) else vectors_ND


def embedding_plan(model: Transformer, pooling: Pooling | None = None) -> Plan:
    """How texts become vectors with this model."""
    if isinstance(model.config, TwoTowersConfig):
        raise ClearheadError("a model of two towers gives vectors itself: model(tokens_BT).text are those of texts")
    if model.tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text")
    if pooling is not None and pooling not in get_args(Pooling):
        raise UsageError(f"pooling is {pooling!r}; there are {', '.join(get_args(Pooling))}")
    folder = Path(model.origin.where) if model.origin is not None else Path()
    limits = [model.config.context, _read(folder / SENTENCE).get("max_seq_length")]
    limit = min((n for n in limits if isinstance(n, int)), default=None)
    return Plan(pooling=pooling or _said_pooling(folder) or "mean", limit=limit)


def _said_pooling(folder: Path) -> Pooling | None:
    """What a checkpoint's sentence-transformers files say, if it has some."""
    modules = _read(folder / MODULES) or []
    path = next((m["path"] for m in modules if str(m.get("type", "")).endswith(".Pooling")), None)
    if path is None:
        return None
    config = _read(folder / path / "config.json")
    chosen = [name for name, on in config.items() if name.startswith("pooling_mode") and on is True]
    if len(chosen) != 1 or chosen[0] not in MODES:
        said = f"says {' and '.join(chosen)}" if chosen else "is missing or says nothing"
        raise ClearheadError(
            f"{folder / path / 'config.json'} {said}; understood is one of {', '.join(MODES)}. Give pooling= (--pool)"
        )
    return MODES[chosen[0]]  # type: ignore[return-value]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def encoded(model: Transformer, texts: Sequence[str], limit: int | None) -> tuple[list[list[int]], list[int]]:
    """The token ids of each text, none where there is nothing to read, and which texts were cut."""
    bare = model.tokenizer.encode("")
    rows, cut = [], []
    for i, text in enumerate(texts):
        ids = model.tokenizer.encode(text) if text.strip() else []
        if limit is not None and len(ids) > limit:
            cut.append(i)
            # The marks after a text stay.
            before = next((k for k, (a, b) in enumerate(zip(bare, ids, strict=False)) if a != b), len(bare))
            after = bare[before:]
            ids = ids[: limit - len(after)] + after
        rows.append(ids)
    return rows, cut


def batches(rows: Sequence[Sequence[int]], batch_tokens: int, *, padded: bool = True) -> Iterator[list[int]]:
    """Indices of rows that have tokens, longest first, so that a batch holds rows of like length: as many as fill
    `batch_tokens` slots with the padding that makes them as long as the longest, or without any.
    """
    batch: list[int] = []
    filled = longest = 0
    for i in sorted((i for i, row in enumerate(rows) if row), key=lambda i: -len(rows[i])):
        takes = longest or len(rows[i]) if padded else len(rows[i])
        if batch and filled + takes > batch_tokens:
            yield batch
            batch, filled, longest = [], 0, 0
            takes = len(rows[i])
        longest = longest or len(rows[i])
        filled += takes
        batch.append(i)
    if batch:
        yield batch


def tells_documents_apart(config: TransformerConfig) -> bool:
    """Whether texts in one row cost what they cost alone: every layer is attention without a term for each pair of
    places, so that each text can have a call of its own (clearhead/ops/attention_documents.py).
    """
    ops = [block.mixer.op for block in config.stack.blocks]
    return all(
        isinstance(op, AttentionConfig)
        and not isinstance(op.positions, AlibiConfig | RelativeBiasConfig)
        and op.scores.softcap is None
        and not op.scores.sinks
        for op in ops
    )


def _stream(model: Transformer, rows: list[list[int]]) -> Tensor:
    """What the model makes of rows of tokens, (tokens of all, D), by one row that has them as documents."""
    tokens_T = torch.tensor([token for row in rows for token in row], device=model.device)
    lengths_N = torch.tensor([len(row) for row in rows], device=model.device)
    documents_T = torch.arange(len(rows), device=model.device).repeat_interleave(lengths_N)
    x_BTD: Tensor = model(tokens_T[None], documents=documents_T[None], read=False)
    return x_BTD[0]


def _stream_of_padded(model: Transformer, rows: list[list[int]]) -> Tensor:
    """The same, by as many rows, padded."""
    inputs = _side_by_side(model, rows)
    x_BTD: Tensor = model(**inputs, read=False)
    return x_BTD[inputs["present"]]


def _side_by_side(model: Transformer, rows: list[list[int]]) -> dict[str, Tensor]:
    """Rows of tokens, padded, and where there are tokens."""
    width = max(map(len, rows))
    tokens_BT = torch.tensor([row + [row[0]] * (width - len(row)) for row in rows], device=model.device)
    lengths_B1 = torch.tensor([[len(row)] for row in rows], device=model.device)
    return {"tokens_BT": tokens_BT, "present": torch.arange(width, device=model.device) < lengths_B1}


def _pooled(x_TD: Tensor, rows: list[list[int]], pooling: Pooling) -> Tensor:
    """One vector for each of some rows of tokens, (N, D), from the stream of all, one behind another."""
    lengths_N = torch.tensor([len(row) for row in rows], device=x_TD.device)
    if pooling == "mean":
        row_T = torch.arange(len(rows), device=x_TD.device).repeat_interleave(lengths_N)
        return x_TD.new_zeros(len(rows), x_TD.shape[1]).index_add_(0, row_T, x_TD) / lengths_N[:, None]
    ends_N = lengths_N.cumsum(0)
    return x_TD[ends_N - 1 if pooling == "last" else ends_N - lengths_N]


def _pool_width(model: Transformer) -> int:
    pool, labels = model.config.heads.pool, model.config.heads.labels
    if pool is None or any(head.at == "pool" for _, head in labels):
        raise ClearheadError("this model gives no pooled vector; take the mean, the first or the last token")
    return model.config.d_model if pool.transform is None else pool.transform.width


def nearest(vectors_ND: Tensor, query_D: Tensor, top: int) -> list[tuple[int, float]]:
    """The `top` rows with the largest dot product with the query, best first; rows of zeros are never among them."""
    scores_N = (vectors_ND @ query_D).masked_fill(~vectors_ND.any(dim=-1), -torch.inf)
    best = scores_N.topk(min(top, int(vectors_ND.any(dim=-1).sum())))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
