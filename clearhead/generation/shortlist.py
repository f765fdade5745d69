"""Choosing without the scores of all tokens: a sketch of the head says which can't be the best, exact rows decide.

The head of a small model is most of what a step reads: 178 of 253 MB in Gemma 3 270M as 4-bit GGUF, 671 of 1,072 in
float32. `clearhead.ops.sketch` reads 0.69 bytes a weight instead and bounds every score from above. A few likely tokens
are scored exactly; whatever is bounded below them is out, and the rest, the shortlist, is scored exactly too.

What is decided is what the whole head would decide. The greedy token is that of `TokenHead` as it computes, in its
dtype with its rounding and its ties: `_error` is how far any order of summing may be off, and where that leaves a
doubt, the whole head is asked. With top_k or min_p, the tokens that may be drawn are those, and their scores exact.
Whoever needs all scores (log-probabilities, penalties, bans, top_p alone, taps on the logits, beams) gets all of them.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from clearhead.config import TokenHeadConfig
from clearhead.generation.options import RunConfig
from clearhead.generation.rows import Row
from clearhead.generation.scores import Scores
from clearhead.ops.sketch import Sketch, at_least, can_sketch, largest, longest_row, sketch, upper_bounds

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

GREEDY_FROM, DRAWN_FROM = 2.0, 4.0
"""Bytes a weight of the head from which it pays to read the sketch instead, for the best token alone and for those of
which one is drawn. Of Gemma 3 270M on two cores, a token takes 32.6 ms in float32, and 22.1 with a shortlist (top_k 40:
34.4 and 23.2), in bfloat16 18.2 and 14.9 (19.0 and 20.6), and with GGUF's 8 bits, whose kernel is faster than the
sketch's, 11.4 and 11.9. The sketch takes 117 MB and 1 s to make."""
LEAST = 2**23
"""Weights in a head below which there is nothing to save."""
MOST_ROWS = 4
"""Up to so many vectors at a time; more are better served by the whole head."""
MOST_K = 256
SHARE = 1 / 16
"""A shortlist longer than this share of the vocabulary costs more than it saves."""
FLAT = 0.02
"""Where a soft-cap is flatter than this, scores can't be told apart by what was before it."""
PATIENCE = 8
"""After so many vectors of which most needed the whole head, the sketch is given up."""


@dataclass(frozen=True)
class _Kept:
    """A sketch, and what it is a sketch of."""

    of: tuple[int, int, int]
    sketch: Sketch | None


_sketches = WeakTensorKeyDictionary()
_lock = threading.Lock()


class Shortlist:
    """Scores for the texts of one call. The sketch is made when first asked."""

    def __init__(self, model: Transformer, size: int) -> None:
        """`size` is how many token ids may be chosen."""
        assert model.head is not None
        self._head = model.head
        self._config = model.head.config
        self._weight_VD = model.unembedding
        self._size = size
        self._sketch: Sketch | None = None
        self._longest = math.inf
        self.asked = self.doubted = 0
        """How many vectors there were, and for how many of them the whole head was asked."""
        self.listed: list[int] = []
        """How long their shortlists were."""

    @staticmethod
    def serves(model: Transformer, rows: list[Row], run: RunConfig) -> bool:
        """Whether it can decide all that is asked for."""
        config, weight = model.config.heads.tokens, model.unembedding
        return (
            config is not None
            and config.scale > 0
            and can_sketch()
            and weight.device.type == "cpu"
            and weight.dtype in (torch.float32, torch.bfloat16)
            and not weight.is_inference()
            and not torch.is_autocast_enabled("cpu")
            and weight.numel() >= LEAST
            and weight.nbytes >= max(map(_pays_from, rows)) * weight.numel()
            and torch.get_float32_matmul_precision() == "highest"
            and not (run.logprobs or run.top_logprobs)
            and (run.taps is None or run.taps.mode("", "logits") == "none")
            and all(_decidable(row, config) for row in rows)
        )

    def __call__(self, x_BD: Tensor, rows: list[Row]) -> Scores:
        """The scores of what follows each vector of the finished stream; `rows` are the texts they belong to."""
        if len(x_BD) > MOST_ROWS or self._gave_up:
            return self._whole(x_BD)
        read_BD = x_BD if self._head.transform is None else self._head.transform(x_BD)
        if self._sketch is None:
            self._sketch = _sketch_of(self._weight_VD, self._size, read_BD)
        if self._sketch is None:
            return self._whole(x_BD)
        self._longest = longest_row(self._sketch)
        self.asked += len(x_BD)
        bounds_BV = self._bounds(self._sketch, read_BD)
        found = [self._short(x_D, bound_V, row) for x_D, bound_V, row in zip(read_BD, bounds_BV, rows, strict=True)]
        short = [pair for pair in found if pair is not None]
        if len(short) < len(found):
            self.doubted += len(found) - len(short)
            return self._whole(x_BD)
        longest = max(len(ids) for ids, _ in short)
        ids_BC = torch.stack([F.pad(ids, (0, longest - len(ids))) for ids, _ in short])
        logits_BC = torch.stack([F.pad(y, (0, longest - len(y)), value=-math.inf) for _, y in short])
        return Scores(logits_BC, ids_BC)

    @property
    def _gave_up(self) -> bool:
        return self.asked >= PATIENCE and 2 * self.doubted > self.asked

    def _whole(self, x_BD: Tensor) -> Scores:
        """As the head itself gives them."""
        return Scores(self._head(x_BD[:, None], self._weight_VD)[:, 0])

    def _bounds(self, of: Sketch, x_BD: Tensor) -> Tensor:
        """What no score exceeds, before any soft-cap."""
        bounds_BV, c = upper_bounds(of, x_BD), self._config
        if c.scale != 1:
            bounds_BV = bounds_BV * c.scale
        return bounds_BV if self._head.bias is None else bounds_BV + self._head.bias[: self._size].float()

    def _short(self, x_D: Tensor, bound_V: Tensor, row: Row) -> tuple[Tensor, Tensor] | None:
        """The tokens that may be chosen behind x and their scores; None where that can't be told."""
        sampling, c = row.config.sampling, self._config
        greedy = sampling.temperature == 0
        k = 1 if greedy or not sampling.top_k else sampling.top_k
        first = largest(bound_V, k if k == 1 else 4 * k)
        known = self._exact(x_D, first)
        # Known at the least: the k-th best of some tokens is no better than the k-th best of all.
        least = float(known.low.topk(min(k, len(first))).values[-1])
        if not math.isfinite(least) or len(first) < k:
            return None
        if not greedy and not sampling.top_k:
            least += sampling.temperature * math.log(sampling.min_p)
        margin = known.margin(least, c.softcap, x_D.dtype)
        ids = at_least(bound_V, least - margin)
        self.listed.append(len(ids))
        if len(ids) == 0 or len(ids) > max(k, self._size * SHARE):
            return None
        known = self._exact(x_D, ids)
        if not greedy:
            return ids, self._as_given(known.dot, ids, x_D.dtype)
        return self._best(x_D, ids, known)

    def _best(self, x_D: Tensor, ids: Tensor, known: _Known) -> tuple[Tensor, Tensor] | None:
        """The token whose score, as the head computes it, is the largest and of equal ones the first."""
        best_low = float(known.low.max())
        near = known.high >= best_low - known.margin(best_low, self._config.softcap, x_D.dtype)
        ids, dot, error = ids[near], known.dot[near], known.error
        if len(ids) > 1:
            # What two orders of summing make of it may differ by twice the error; float64 has next to none.
            weight_CD = F.embedding(ids, self._weight_VD)
            dot = weight_CD.double() @ x_D.double()
        low_C, high_C = (self._as_given(dot + e, ids, x_D.dtype) for e in (-error, error))
        best = int(low_C.argmax())
        rivals = high_C >= low_C[best]
        rivals[best:] = high_C[best:] > low_C[best]
        rivals[best] = False
        if bool(rivals.any()):
            return None
        return ids[best : best + 1], low_C[best : best + 1]

    def _exact(self, x_D: Tensor, ids: Tensor) -> _Known:
        """The products of these tokens' rows with x, in float32."""
        weight_CD = F.embedding(ids, self._weight_VD).float()
        x_D = x_D.float()
        dot_C = weight_CD @ x_D
        error = _error(len(x_D)) * self._longest * float(x_D.norm())
        linear_C = dot_C * self._config.scale
        size = float(linear_C.abs().max())
        if self._head.bias is not None:
            linear_C = linear_C + self._head.bias[ids].float()
            size = max(size, float(linear_C.abs().max()))
        off = 2 * error * self._config.scale + 1e-6 * size
        return _Known(dot_C, error, size, linear_C - off, linear_C + off)

    def _as_given(self, dot_C: Tensor, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """What the head makes of products, with its roundings, each of which keeps their order."""
        c, bias_V = self._config, self._head.bias
        if c.scale == 1.0 or bias_V is None:
            y_C = (dot_C if bias_V is None else dot_C + bias_V[ids].to(dot_C.dtype)).to(dtype)
            y_C = y_C if c.scale == 1.0 else y_C * c.scale
        else:
            y_C = dot_C.to(dtype) * c.scale + bias_V[ids]
        return y_C if c.softcap is None else torch.tanh(y_C / c.softcap) * c.softcap


@dataclass(frozen=True)
class _Known:
    """What is known of a few tokens' scores."""

    dot: Tensor
    """The products themselves, (C,)."""
    error: float
    """How far they, and any other order of summing them, may be off."""
    size: float
    """The largest score, on the way to what it is before any soft-cap."""
    low: Tensor
    high: Tensor
    """Between these lies the score before any soft-cap, (C,)."""

    def margin(self, score: float, softcap: float | None, dtype: torch.dtype) -> float:
        """How far below a score another has to be so that the head's roundings, and its soft-cap, leave it below."""
        size, slope = max(abs(score), self.size), 1.0
        if softcap is not None:
            slope = 1 - math.tanh(score / softcap) ** 2
            if slope < FLAT:
                return math.inf
            size = max(size, softcap)
        return (4 * torch.finfo(dtype).eps * size + float((self.high - self.low).max())) / slope


def _decidable(row: Row, config: TokenHeadConfig) -> bool:
    """Whether a row's next token can be told from the largest scores."""
    sampling = row.config.sampling
    if row.config.forbids or row.config.penalties.counts:
        return False
    if sampling.temperature == 0 or 0 < sampling.top_k <= MOST_K:
        return True
    return sampling.top_k == 0 and sampling.top_p == 1 and sampling.min_p > 0 and config.softcap is None


def _pays_from(row: Row) -> float:
    return GREEDY_FROM if row.config.sampling.temperature == 0 else DRAWN_FROM


def _error(n: int) -> float:
    """How far a float32 sum of n products is off at most, in any order, over |w| |x| (Higham 2002, section 3.1)."""
    u = 2.0**-24
    return (n + 16) * u / (1 - (n + 16) * u)


def _sketch_of(weight_VD: Tensor, size: int, x_BD: Tensor) -> Sketch | None:
    """The sketch of the head as it is now: kept as long as the head lives, for the next text."""
    content = (weight_VD.data_ptr() if type(weight_VD) is torch.nn.Parameter else 0, weight_VD._version, size)
    with _lock:
        kept: _Kept | None = _sketches.get(weight_VD)
        if kept is None or kept.of != content:
            # Ordinary tensors, though this is called while generating: they outlive the call.
            with torch.inference_mode(False), torch.no_grad():
                made = sketch(lambda start, stop: _plain_rows(weight_VD, start, stop), size, x_BD.clone())
            kept = _Kept(content, made)
            _sketches[weight_VD] = kept
        return kept.sketch


def _plain_rows(weight_VD: Tensor, start: int, stop: int) -> Tensor:
    return F.embedding(torch.arange(start, stop), weight_VD)
