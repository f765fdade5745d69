"""What a model's loss is measured on, to tell which of its heads it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.generation.prompts import window
from clearhead.lens.arguments import arguments
from clearhead.ops.losses import IGNORE

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.taps import Taps

LONGEST_ROW = 512
BATCH_SLOTS = 4096
HIDDEN = 0.15
"""The share of tokens that a model of both sides has to tell (Devlin 2018, section 3.1)."""


@dataclass(frozen=True)
class Examples:
    """A batch: what a model is given, by the names of its arguments ("tokens", "pixels", "source"), and what it should
    have said: ids (B, T), -100 where nothing is asked, or one label a row, (B,).
    """

    inputs: Mapping[str, Any]
    targets: Tensor


def examples_of(model: Transformer, text: str, max_tokens: int, seed: int = 0) -> list[Examples]:
    """A text in rows of equal length: each token is to be told from those before it, or, by a model that sees both
    sides, 15 % of them from the rest.

    Raises:
        ClearheadError: the model does not read and write text, or there is too little of it.
    """
    config = model.config
    both = isinstance(config, TransformerConfig) and config.encoder is not None and config.decoder is not None
    if not isinstance(config, TransformerConfig) or both or config.heads.tokens is None:
        raise ClearheadError(
            "this model does not tell the tokens of one text, so there is no loss on a text; from Python, give "
            "batches of what it takes and should say: clearhead.prune(model, fraction, text=[Examples(...), ...])"
        )
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text; give batches of ids (Examples)")
    before, after = _marks(tokenizer)
    decodes = config.decoder is not None
    after = [] if decodes else after
    width = min(window(config) or LONGEST_ROW, LONGEST_ROW)
    room = width - len(before) - len(after) + decodes
    ids = torch.tensor(tokenizer.encode(text, bos=False)[:max_tokens])
    n_rows, length = max(len(ids) // room, 1), min(len(ids), room)
    if length < 2:
        raise ClearheadError(f"a text of {len(ids)} tokens is too short to measure a loss on; give a longer one")
    text_NT = ids[: n_rows * length].view(n_rows, length)
    marks = [torch.tensor(part, dtype=text_NT.dtype).expand(n_rows, -1) for part in (before, after)]
    rows_NT = torch.cat([marks[0], text_NT, marks[1]], dim=1).to(model.device)
    if decodes:
        seen_NT, targets_NT = rows_NT[:, :-1], rows_NT[:, 1:]
    else:
        seen_NT, targets_NT = _hidden(model, rows_NT, slice(len(before), len(before) + length), seed)
    n = max(1, BATCH_SLOTS // width)
    return [Examples({"tokens": seen_NT[i : i + n]}, targets_NT[i : i + n]) for i in range(0, n_rows, n)]


def row_losses(model: Transformer, examples: Examples, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
    """Nats of each row, and how many targets it has: (B,) both.

    Raises:
        ClearheadError: the model gives no scores for such targets.
    """
    scores = _scores(arguments(model, examples.inputs).call(model, taps=taps), examples.targets)
    targets = examples.targets.to(scores.device)
    flat = F.cross_entropy(scores.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORE, reduction="none")
    n_rows = len(targets)
    return flat.view(n_rows, -1).sum(1), (targets != IGNORE).view(n_rows, -1).sum(1)


def loss_on(model: Transformer, batches: Sequence[Examples], taps: Taps | None = None) -> float:
    """Nats a target, over all batches."""
    nats, n = 0.0, 0
    with torch.no_grad(), in_evaluation(model):
        for examples in batches:
            nats_B, n_B = row_losses(model, examples, taps)
            nats, n = nats + float(nats_B.double().sum()), n + int(n_B.sum())
    if not n:
        raise ClearheadError("the examples ask for nothing: every target is -100")
    return nats / n


@contextmanager
def in_evaluation(model: Transformer) -> Iterator[None]:
    """Without dropout; then as it was."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


def default_text() -> str:
    """A text that is always there: the reference of the Python language, as Python's own help prints it."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ClearheadError("this Python came without its help texts; give a text to rank heads on") from None
    return "\n\n".join(topics[name] for name in sorted(topics))


def _marks(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What a tokenizer puts before a text and behind it."""
    plain, whole = tokenizer.encode("a", bos=False), tokenizer.encode("a")
    at = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    return whole[:at], whole[at + len(plain) :]


def _hidden(model: Transformer, rows_NT: Tensor, text: slice, seed: int) -> tuple[Tensor, Tensor]:
    """Rows with some of their text hidden, and what is hidden."""
    names = model.tokenizer.vocabulary.names
    mask = model.config.ids.mask
    if mask is None and "mask_token" in names:
        mask = model.tokenizer.token_to_id(names["mask_token"])
    if mask is None:
        raise ClearheadError("this model's tokenizer has no mask to hide tokens behind; give batches (Examples)")
    chance_NT = torch.rand(rows_NT.shape, generator=torch.Generator().manual_seed(seed))
    is_text = torch.zeros(rows_NT.shape[1], dtype=torch.bool)
    is_text[text] = True
    chosen_NT = ((chance_NT < HIDDEN) & is_text).to(rows_NT.device)
    return rows_NT.masked_fill(chosen_NT, mask), rows_NT.masked_fill(~chosen_NT, IGNORE)


def _scores(out: Any, targets: Tensor) -> Tensor:
    """Of a model's outputs, the scores of what the targets name."""
    outputs = {"": out} if isinstance(out, Tensor) else {k: v for k, v in out._asdict().items() if v is not None}
    fits = {name: value for name, value in outputs.items() if value.shape[:-1] == targets.shape}
    for name in ("tokens", "logits", *fits):
        if name in fits and name not in ("stream", "pooled", "text", "image"):
            found: Tensor = fits[name]
            return found
    shapes = ", ".join(f"{name or 'its output'} {tuple(value.shape)}" for name, value in outputs.items())
    raise ClearheadError(f"no output of the model scores targets of shape {tuple(targets.shape)}: it gives {shapes}")
