"""What may come next, guessed at little cost: what came next before in the text, or what a smaller model writes.

A guess costs no exactness: `ahead.py` keeps of it what the model would have written itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.chooser import Chooser, Proposed
from clearhead.generation.options import Faster
from clearhead.generation.prompts import window
from clearhead.generation.rows import Row
from clearhead.generation.scores import Scores
from clearhead.layer_state import RunningState
from clearhead.state import State

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

LONGEST, SHORTEST = 4, 2
"""So many last tokens are looked up, the more the sooner believed."""
CHUNK = 512


@dataclass(frozen=True)
class Draft:
    """Tokens that may come next."""

    tokens: list[int]
    probs_NV: list[Tensor] | None = None
    """What each was drawn from, (V,); None where nothing was drawn."""

    def at(self, n: int) -> Proposed | None:
        """The n-th of them; None behind the last, and where nothing was drawn: then it is enough to compare."""
        if self.probs_NV is None or n == len(self.tokens):
            return None
        return Proposed(self.tokens[n], self.probs_NV[n])


class Drafter(Protocol):
    """Who guesses."""

    def propose(self, row: Row, most: int) -> Draft:
        """At most so many tokens that may follow the text as it is now, perhaps none."""
        ...


class Lookup:
    """What followed the last few tokens where they stood before, the last time (Saxena 2023, prompt look-up)."""

    def __init__(self) -> None:
        self._behind: dict[tuple[int, ...], int] = {}
        """Of each run of tokens, the place behind where it stood last."""
        self._n_seen = 0

    def propose(self, row: Row, most: int) -> Draft:
        tokens = row.tokens
        # Only what has a token behind it: the last run would find itself.
        for end in range(max(1, self._n_seen), len(tokens)):
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                self._behind[tuple(tokens[end - n : end])] = end
        self._n_seen = len(tokens)
        for n in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            place = self._behind.get(tuple(tokens[-n:]))
            if place is not None:
                return Draft(tokens[place : place + most])
        return Draft([])


class Smaller:
    """What a smaller model of the same vocabulary writes, chosen as the row chooses."""

    def __init__(self, model: Transformer, size: int, backend: str) -> None:
        """`size` is how many token ids may be drawn."""
        self._model = model
        self._size = size
        self._backend = backend
        self._room = window(model.config)
        self._state: State | None = None
        self._read: list[int] = []

    def propose(self, row: Row, most: int) -> Draft:
        tokens: list[int] = []
        probs: list[Tensor] = []
        if self._room is not None:
            most = min(most, self._room - len(row.tokens))
        shadow = row.fork()
        chooser = Chooser([shadow], self._size, self._model.device)
        for _ in range(most):
            logits_1V = self._after(shadow.tokens)
            if bool(logits_1V.isnan().any()):
                break
            token, probs_V = chooser.draft(Scores(logits_1V))
            if token < 0:
                break
            tokens.append(token)
            if probs_V is not None:
                probs.append(probs_V)
            shadow.tokens.append(token)
            shadow.drawn.append(len(shadow.tokens) - 1)
            shadow.new.append(token)
            if token in row.ends:
                break
        return Draft(tokens, probs or None)

    def _after(self, tokens: list[int]) -> Tensor:
        """The scores of what follows a text, (1, V), of which most was read before."""
        same = next((i for i, (a, b) in enumerate(zip(self._read, tokens, strict=False)) if a != b), len(self._read))
        same = min(same, len(tokens) - 1)
        if self._state is not None and same < len(self._read):
            # A window that slid may have lost what the shorter text would see: then all is read again.
            if self._state.can_truncate(same):
                self._state.truncate(same)
            else:
                self._state = None
        if self._state is None:
            self._state, same = self._model.new_state(len(tokens) + CHUNK), 0
        self._read = list(tokens)
        for start in range(same, len(tokens), CHUNK):
            part = torch.tensor([tokens[start : start + CHUNK]], device=self._model.device)
            last = 1 if start + CHUNK >= len(tokens) else 0
            logits_1TV = self._model(part, state=self._state, last=last, backend=self._backend)
        logits_1V: Tensor = logits_1TV[:, -1]
        return logits_1V


def check_ahead(model: Transformer, faster: Faster, n_rows: int, size: int) -> None:
    """Refuse what can't be read ahead of, or by; `size` is how many token ids may be drawn.

    Raises:
        UsageError: several prompts; a draft model that writes other tokens, none, or can't take back what it wrote.
        ClearheadError: a model whose rotary frequencies follow the length.
    """
    if n_rows != 1:
        name = "lookup" if faster.lookup else "draft"
        raise UsageError(f"{name} reads ahead of one prompt, and there are {n_rows}; give them one by one")
    for block in model.config.stack.blocks:
        if getattr(getattr(block.mixer.op, "positions", None), "depends_on_length", False):
            raise ClearheadError(
                "this model's rotary frequencies follow the length of the text, so reading ahead would change its "
                "numbers; leave lookup and draft"
            )
    if faster.draft is not None:
        _check_draft(model, faster.draft, size)


def _check_draft(model: Transformer, draft: Transformer, size: int) -> None:
    if draft.config.decoder is None or draft.config.heads.tokens is None or draft.config.encoder is not None:
        raise UsageError("draft must be a decoder with a head over tokens, and no encoder beside it")
    mine, its = model.tokenizer, draft.tokenizer
    if draft.config.vocab_size < size or (mine is not None and its is not None and not _alike(mine, its)):
        raise UsageError("the draft model has other tokens than the model; give one of the same tokenizer")
    if draft.device != model.device:
        raise UsageError(f"the draft model is on {draft.device} and the model on {model.device}; load both on one")
    if any(isinstance(layer, RunningState) for layer in draft.new_state().layers):
        raise UsageError("a recurrent or state-space model can't take back what it has drafted; draft with another")


@lru_cache(maxsize=8)
def _alike(a: Any, b: Any) -> bool:
    """Whether two tokenizers have the same ids."""
    return a is b or bool(a.core.get_vocab(with_added_tokens=True) == b.core.get_vocab(with_added_tokens=True))
