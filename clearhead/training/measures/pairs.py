"""How well sources are turned into targets: exact match, BLEU and chrF of what the model writes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.generation import generate
from clearhead.model.transformer import Transformer
from clearhead.training.trainer import evaluating

ROWS = 64
"""So many sources are read together."""
ROOM = 8
"""A text may be so many tokens longer than the longest true target before it is stopped."""


@dataclass(frozen=True)
class PairScores:
    """What a model made of sources, beside the true targets."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    written: tuple[str, ...]
    files: tuple[str, ...] = ()
    """Where each pair is from, if that is known."""

    @property
    def exact(self) -> float:
        """The share that is the true target, letter by letter."""
        pairs = zip(self.written, self.targets, strict=True)
        return sum(ours == theirs for ours, theirs in pairs) / len(self.targets)

    @property
    def bleu(self) -> float:
        """Papineni 2002, of the whole corpus, 0 to 100; as `sacrebleu` counts it (Post 2018)."""
        return float(_sacrebleu().corpus_bleu(list(self.written), [list(self.targets)]).score)

    @property
    def chrf(self) -> float:
        """chrF2 of the whole corpus, 0 to 100 (Popovic 2015)."""
        return float(_sacrebleu().corpus_chrf(list(self.written), [list(self.targets)]).score)

    def summary(self) -> dict[str, Any]:
        """The numbers by name, with what is exact of each file where there are several; BLEU and chrF only where
        `sacrebleu` is installed.
        """
        found = {"pairs": len(self.targets), "exact": self.exact}
        if len(set(self.files)) > 1:
            found |= {f"exact_{name}": self._exact_of(name) for name in dict.fromkeys(self.files)}
        return {**found, "bleu": self.bleu, "chrf": self.chrf} if has_sacrebleu() else found

    def _exact_of(self, file: str) -> float:
        hits = [self.written[i] == self.targets[i] for i, name in enumerate(self.files) if name == file]
        return sum(hits) / len(hits)


def measure_pairs(
    model: Transformer,
    pairs: Sequence[tuple[str, str]],
    *,
    files: Sequence[str] = (),
    n_beams: int = 1,
    progress: Callable[[int], Any] | None = None,
) -> PairScores:
    """Have a model turn every source into a target: the likeliest token each time, or the best of `n_beams` texts.

    Args:
        model: one that writes.
        pairs: sources and true targets.
        files: where each is from, to tell what is exact of each file.
        n_beams: 1 is greedy.
        progress: told after each batch how many pairs it had.

    Raises:
        ClearheadError: there are no pairs, or the model can't write or read them.
    """
    if not pairs:
        raise ClearheadError("there are no pairs to evaluate on")
    if model.tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text")
    lengths = [len(model.tokenizer.encode(target, bos=False)) for _, target in pairs]
    order = sorted(range(len(pairs)), key=lambda i: -lengths[i])
    most = lengths[order[0]] + ROOM
    if model.config.context is not None:
        most = min(most, model.config.context - 1)
    written = [""] * len(pairs)
    with evaluating(model):
        for first in range(0, len(order), ROWS):
            which = order[first : first + ROWS]
            sources = [pairs[i][0] for i in which]
            results = generate(model, sources, max_new_tokens=most, temperature=0, n_beams=n_beams)
            for i, result in zip(which, results, strict=True):
                written[i] = result.text
            if progress is not None:
                progress(len(which))
    texts = [tuple(column) for column in zip(*pairs, strict=True)]
    return PairScores(texts[0], texts[1], tuple(written), tuple(files))


def has_sacrebleu() -> bool:
    """Whether BLEU and chrF can be counted here."""
    return importlib.util.find_spec("sacrebleu") is not None


def _sacrebleu() -> Any:
    if not has_sacrebleu():
        raise ClearheadError('BLEU and chrF are counted by `sacrebleu`. Run: pip install "clearhead[train]"')
    return importlib.import_module("sacrebleu")
