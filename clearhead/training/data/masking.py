"""Masked-language-model training (Devlin 2018, BERT, section 3.1): which tokens are hidden, and behind what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ClearheadError
from clearhead.ops.losses import IGNORE
from clearhead.training.config import MaskingConfig

if TYPE_CHECKING:
    from clearhead.inputs.tokenizer import Tokenizer

Ids = NDArray[np.int64]


class Masker:
    """Masks rows of one tokenizer's ids. Special tokens are never chosen, and never put in another's place."""

    def __init__(self, tokenizer: Tokenizer, config: MaskingConfig) -> None:
        name = tokenizer.vocabulary.names.get("mask_token")
        mask_id = tokenizer.token_to_id(name) if name is not None else None
        if mask_id is None:
            raise ClearheadError(
                f"the tokenizer of {tokenizer.where} has no mask token, so nothing can be masked; train one with "
                "marks that include mask_token"
            )
        self.config = config
        self.mask_id = mask_id
        self.special_V = np.zeros(tokenizer.vocab_size, bool)
        self.special_V[sorted(tokenizer.special)] = True
        self.ordinary = ordinary_ids(tokenizer)
        self.begins_V = _begin_words(tokenizer, self.ordinary) if config.whole_words else None

    def __call__(self, tokens_T: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """What the model reads in place of a row, and what it has to tell there: IGNORE where nothing.

        The shares are exact to within one token in every row, and on average altogether: what is left over of a
        token goes to one side or the other by lot.
        """
        chosen = self._choose(tokens_T, rng)
        rng.shuffle(chosen)
        targets_T = np.full_like(tokens_T, IGNORE)
        targets_T[chosen] = tokens_T[chosen]
        lot = rng.random()
        n_masked = int(len(chosen) * self.config.masked + lot)
        n_changed = int(len(chosen) * (self.config.masked + self.config.other) + lot)
        seen_T = tokens_T.copy()
        seen_T[chosen[:n_masked]] = self.mask_id
        others = chosen[n_masked:n_changed]
        seen_T[others] = self.ordinary[rng.integers(len(self.ordinary), size=len(others))]
        return seen_T, targets_T

    def _choose(self, tokens_T: Ids, rng: np.random.Generator) -> Ids:
        """The slots that are to be told."""
        maskable = np.flatnonzero(~self.special_V[tokens_T])
        # Of few tokens one is chosen all the same: a row without any would teach nothing.
        n = min(max(int(len(maskable) * self.config.share + rng.random()), 1), len(maskable))
        if self.begins_V is None:
            return rng.permutation(maskable)[:n]
        # A word is a run of slots next to each other, of which only the first begins one.
        begins = self.begins_V[tokens_T[maskable]]
        begins[1:] |= maskable[1:] != maskable[:-1] + 1
        words = np.split(maskable, np.flatnonzero(begins[1:]) + 1) if len(maskable) else []
        chosen: list[Ids] = []
        left = n
        order = rng.permutation(len(words))
        for word in order:
            if len(words[word]) <= left:
                chosen.append(words[word])
                left -= len(words[word])
        # Where every word is longer, one is chosen all the same.
        return np.concatenate(chosen or [words[word] for word in order[:1]] or [maskable])


def ordinary_ids(tokenizer: Tokenizer) -> Ids:
    """The ids that stand for text, and for no mark."""
    known = tokenizer.core.get_vocab(with_added_tokens=True).values()
    return np.array(sorted({i for i in known if i not in tokenizer.special}), np.int64)


def _begin_words(tokenizer: Tokenizer, known: Ids) -> NDArray[np.bool_]:
    """Which ids can't be the continuation of a word: those that begin with a space or a sign."""
    begins_V = np.ones(tokenizer.vocab_size, bool)
    for i, piece in zip(known.tolist(), tokenizer.pieces(known.tolist()), strict=True):
        # Parts of characters read <0xE9>; what stands alone on a mark is part of the character before.
        part = len(piece) >= 6 and piece.startswith("<0x")
        begins_V[i] = not (piece[0].isalnum() or piece[0] in "_◌" or part)
    return begins_V
