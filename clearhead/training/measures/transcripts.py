"""How well a model writes down what is said: word errors and exact match of what it writes."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.generation import generate
from clearhead.generation.prompts import window
from clearhead.model.transformer import Transformer
from clearhead.training.trainer import evaluating

ROWS = 64
"""So many sounds are heard together."""
ROOM = 8
"""A text may be so many tokens longer than the longest true one before it is stopped."""


@dataclass(frozen=True)
class TranscriptScores:
    """What a model wrote down, beside what was said."""

    said: tuple[str, ...]
    written: tuple[str, ...]

    @property
    def word_error_rate(self) -> float:
        """The fewest words to put in, take out or change, of all texts together, a word that was said."""
        return float(_jiwer().wer(list(self.said), list(self.written)))

    @property
    def exact(self) -> float:
        """The share that is what was said, letter by letter."""
        pairs = zip(self.said, self.written, strict=True)
        return sum(said == written for said, written in pairs) / len(self.said)

    def of(self, which: Sequence[int]) -> TranscriptScores:
        """Of some of the sounds, by number."""
        return TranscriptScores(tuple(self.said[i] for i in which), tuple(self.written[i] for i in which))

    def summary(self) -> dict[str, Any]:
        """The numbers by name."""
        return {"sounds": len(self.said), "word_error_rate": self.word_error_rate, "exact": self.exact}


def measure_transcripts(
    model: Transformer,
    frames: Iterable[Tensor],
    said: Sequence[str],
    *,
    progress: Callable[[int], Any] | None = None,
) -> TranscriptScores:
    """Have a model write down sounds, the likeliest token each time.

    Args:
        model: one that hears and writes.
        frames: spectrograms in batches (B, bands, frames).
        said: what is said in each sound, in the same order.
        progress: told after each batch how many sounds it had.

    Raises:
        ClearheadError: there are no sounds, or the model can't hear or write.
    """
    if not said:
        raise ClearheadError("there are no sounds to evaluate on")
    if model.tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't write text")
    most = max(len(model.tokenizer.encode(text, bos=False)) for text in set(said)) + ROOM
    if (room := window(model.config)) is not None:
        most = min(most, room - 1)
    written: list[str] = []
    with evaluating(model):
        for frames_BMF in frames:
            results = generate(model, frames_BMF, max_new_tokens=most, temperature=0)
            assert isinstance(results, list)
            written += [" ".join(result.text.split()) for result in results]
            if progress is not None:
                progress(len(frames_BMF))
    return TranscriptScores(tuple(said), tuple(written))


def _jiwer() -> Any:
    if importlib.util.find_spec("jiwer") is None:
        raise ClearheadError('word errors are counted by the package `jiwer`. Run: pip install "clearhead[train]"')
    return importlib.import_module("jiwer")
