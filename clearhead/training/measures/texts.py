"""How well a decoder predicts texts: each token from those before it, by a sliding window."""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.prompts import window as context_of
from clearhead.model.transformer import Transformer
from clearhead.ops.losses import IGNORE
from clearhead.training.trainer import evaluating

DEFAULT_WINDOW = 1024
"""For models that name no length."""
BATCH_SLOTS = 8192
BATCH_LOGITS = 2**26
"""So many scores, a quarter of a gigabyte, are in memory at a time."""


@dataclass(frozen=True)
class FileScore:
    """How well one text was predicted."""

    name: str
    n_bytes: int
    n_tokens: int
    nats: float
    """Minus the natural logarithm of the text's probability."""
    n_right: int
    """Tokens that the model held to be the likeliest."""

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / max(self.n_bytes, 1)


@dataclass(frozen=True)
class TextScores:
    """How well several texts were predicted, token by token, each text by itself."""

    files: tuple[FileScore, ...]
    window: int
    stride: int

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)

    @property
    def n_tokens(self) -> int:
        return sum(file.n_tokens for file in self.files)

    @property
    def loss(self) -> float:
        """Nats a token."""
        return sum(file.nats for file in self.files) / self.n_tokens

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))

    @property
    def bits_per_byte(self) -> float:
        """What the texts would take up, compressed by this model: a number that tokenizers don't change."""
        return sum(file.nats for file in self.files) / math.log(2) / self.n_bytes

    @property
    def accuracy(self) -> float:
        """The share of tokens that the model held to be the likeliest."""
        return sum(file.n_right for file in self.files) / self.n_tokens

    def summary(self) -> dict[str, Any]:
        """The numbers by name."""
        names = ("n_bytes", "n_tokens", "loss", "perplexity", "bits_per_byte", "accuracy", "window", "stride")
        return {"files": len(self.files), **{name: getattr(self, name) for name in names}}


def measure_texts(
    model: Transformer,
    texts: Mapping[str, str],
    *,
    window: int | None = None,
    stride: int | None = None,
    progress: Callable[[int], Any] | None = None,
) -> TextScores:
    """Have a decoder predict every token of some texts, each from what stands before it.

    A text begins behind the model's begin mark, which is not scored. One longer than `window` is read in windows that
    overlap: each scores the tokens that no earlier one did, at most `stride` of them, so that every token has at least
    `window - stride` before it.

    Args:
        model: what `clearhead.load` gave.
        texts: by name.
        window: how many tokens are read at a time; None is the length that the model was made for.
        stride: how far windows move on; None is half of the window.
        progress: told after each batch about how many bytes it scored.

    Raises:
        ClearheadError: the model does not predict text, or there is none.
    """
    if model.config.decoder is None or model.config.encoder is not None or model.config.heads.tokens is None:
        raise ClearheadError("only a decoder with a head over tokens, and no encoder, can be evaluated on text")
    if model.tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text")
    context = context_of(model.config)
    window = min(context or DEFAULT_WINDOW, DEFAULT_WINDOW * 4) if window is None else window
    if window < 1 or (context is not None and window > context):
        raise UsageError(
            f"window is {window}; it must be from 1 to the {context or 'number of'} tokens the model reads"
        )
    stride = max(window // 2, 1) if stride is None else stride
    if not 1 <= stride <= window:
        raise UsageError(f"stride is {stride}; it must be from 1 to the window, {window}")
    if not any(texts.values()):
        raise ClearheadError("there is no text to evaluate on: all files are empty")
    begin = begin_marks(model)
    sizes = [len(text.encode()) for text in texts.values()]
    rows = [torch.tensor(begin + model.tokenizer.encode(text, bos=False)) for text in texts.values()]
    nats, right = [0.0] * len(rows), [0] * len(rows)
    pieces = [piece for i, row in enumerate(rows) for piece in _pieces(i, len(row), window, stride)]
    with evaluating(model):
        for batch in in_batches(pieces, model.config.vocab_size):
            nats_B, right_B = score(model, rows, batch)
            for piece, lost, hits in zip(batch, nats_B.tolist(), right_B.tolist(), strict=True):
                nats[piece.row] += lost
                right[piece.row] += hits
            if progress is not None:
                progress(round(sum(piece.n_scored * sizes[piece.row] / len(rows[piece.row]) for piece in batch)))
    # Without a mark to begin with there is nothing to predict a first token from: it costs what a blind guess does.
    blind = 0.0 if begin else math.log(model.config.vocab_size)
    files = tuple(
        FileScore(
            name,
            sizes[i],
            len(row) - len(begin),
            nats[i] + (blind if len(row) else 0.0),
            right[i],
        )
        for i, (name, row) in enumerate(zip(texts, rows, strict=True))
    )
    return TextScores(files, window, stride)


def begin_marks(model: Transformer) -> list[int]:
    """The mark before a text: the tokenizer's own, or what models without one put between texts."""
    tokenizer, ids = model.tokenizer, model.config.ids
    if tokenizer.adds_bos and tokenizer.bos_id is not None:
        return [tokenizer.bos_id]
    marks = [ids.bos, *ids.eos, *tokenizer.eos_ids]
    return [mark for mark in marks if mark is not None][:1]


@dataclass(frozen=True)
class Piece:
    """Tokens `start` to `end` of a row are read; those from `scored` to `end` are what they predict, both inclusive."""

    row: int
    start: int
    end: int
    scored: int

    @property
    def n_read(self) -> int:
        return self.end - self.start

    @property
    def n_scored(self) -> int:
        return self.end - self.scored + 1


def _pieces(row: int, length: int, window: int, stride: int) -> Iterator[Piece]:
    """Windows over a row in which every token but the first is scored once."""
    scored = 1
    while scored < length:
        end = min(window if scored == 1 else scored - 1 + stride, length - 1)
        yield Piece(row, max(end - window, 0), end, scored)
        scored = end + 1


def in_batches(pieces: Sequence[Piece], vocab_size: int) -> Iterator[list[Piece]]:
    """Pieces of like length together, longest first."""
    pieces = sorted(pieces, key=lambda piece: (-piece.n_read, -piece.n_scored))
    start = 0
    while start < len(pieces):
        first = pieces[start]
        n = max(1, min(BATCH_SLOTS // first.n_read, BATCH_LOGITS // (first.n_read * vocab_size)))
        yield list(pieces[start : start + n])
        start += n


def score(model: Transformer, rows: Sequence[Tensor], pieces: Sequence[Piece]) -> tuple[Tensor, Tensor]:
    """Nats and right guesses of each piece."""
    width = max(piece.n_read for piece in pieces)
    tokens_BT = torch.zeros(len(pieces), width, dtype=torch.int64)
    targets_BT = torch.full_like(tokens_BT, IGNORE)
    for i, piece in enumerate(pieces):
        # Padding comes first, so that what is scored is at the end, and only that is read out.
        ids = rows[piece.row]
        tokens_BT[i, width - piece.n_read :] = ids[piece.start : piece.end]
        targets_BT[i, width - piece.n_scored :] = ids[piece.scored : piece.end + 1]
    lengths_B = torch.tensor([piece.n_read for piece in pieces])
    ragged = bool((lengths_B < width).any())
    present_BT = torch.arange(width) >= width - lengths_B[:, None] if ragged else None
    last = max(piece.n_scored for piece in pieces)
    targets_BT = targets_BT[:, width - last :].to(model.device)
    present_BT = present_BT.to(model.device) if present_BT is not None else None
    logits_BTV = model(tokens_BT.to(model.device), present=present_BT, last=last)
    logits_BTV = (logits_BTV if isinstance(logits_BTV, Tensor) else logits_BTV.tokens).float()
    flat_N = F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORE, reduction="none")
    losses_BT = flat_N.view(targets_BT.shape).double()
    right_BT = logits_BTV.argmax(dim=-1) == targets_BT
    return losses_BT.sum(dim=1), right_BT.sum(dim=1)


def report_on(model: Transformer, texts: Mapping[str, str]) -> dict[str, Any]:
    """The model's bits per byte on held-out texts, beside those of `xz -9`; nothing where no text is held out."""
    if not any(texts.values()):
        return {}
    return {**measure_texts(model, texts).summary(), "xz_bits_per_byte": xz_bits_per_byte(texts.values())}


def xz_bits_per_byte(texts: Iterable[str]) -> float:
    """What `xz -9` makes of texts, each by itself."""
    sizes = [(len(data), len(lzma.compress(data, preset=9))) for data in (text.encode() for text in texts)]
    return 8 * sum(after for _, after in sizes) / sum(before for before, _ in sizes)
