"""What a checkpoint says may, may not and must be written: its generation config's bans and forced tokens.

As the `transformers` package applies them. The text in these rules is the decoder's: with an encoder the source does
not count as part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.config import record

if TYPE_CHECKING:
    from clearhead.generation.rows import Row


@record
class Rules:
    """Bans and forced tokens. Those of one row are worked out from its text."""

    first: int | None = None
    """The token behind a prompt of one token (the language of a translation)."""
    last: tuple[int, ...] = ()
    """One of these is the last of max_new_tokens."""
    never: tuple[int, ...] = ()
    not_first: tuple[int, ...] = ()
    """Never the first new token."""
    phrases: tuple[tuple[int, ...], ...] = ()
    """Runs of tokens never completed."""
    n_gram: int = 0
    """No run of so many tokens twice; 0 is off."""
    least: int = 0
    """The text, prompt included, is not ended before it has so many tokens."""
    least_new: int = 0
    """The same for the new tokens alone."""

    def apply(self, score_BV: Tensor, rows: Sequence[Row]) -> Tensor:
        """The scores with what is banned at minus infinity. A forced token gets 0, and all others minus infinity."""
        if self == Rules():
            return score_BV
        size = score_BV.shape[1]
        places = [(i, token) for i, row in enumerate(rows) for token in self.banned(row) if token < size]
        if places:
            row_N, token_N = torch.tensor(places, device=score_BV.device).T
            score_BV = score_BV.index_put((row_N, token_N), score_BV.new_tensor(-math.inf))
        for i, row in enumerate(rows):
            forced = [token for token in self.forced(row) if token < size]
            if forced:
                only_V = torch.full_like(score_BV[i], -math.inf)
                only_V[forced] = 0.0
                score_BV = score_BV.index_put((torch.tensor(i, device=score_BV.device),), only_V)
        return score_BV

    def forced(self, row: Row) -> tuple[int, ...]:
        """The tokens of which the next one must be."""
        if self.last and len(row.new) == row.config.limits.max_new_tokens - 1:
            return self.last
        return (self.first,) if self.first is not None and len(row.tokens) == 1 else ()

    def banned(self, row: Row) -> Iterator[int]:
        """The tokens that the next one may not be."""
        yield from self.never
        n_new, n_whole = len(row.new), len(row.tokens)
        # Where the first new token is forced, the one after it counts as the first.
        free_from = 1 if self.first is not None and n_whole - n_new == 1 else 0
        if n_new == free_from:
            yield from self.not_first
        if n_whole < self.least or n_new < self.least_new:
            yield from row.ends
        for *before, last in self.phrases:
            if len(before) <= n_whole and row.tokens[n_whole - len(before) :] == before:
                yield last
        if self.n_gram:
            yield from _completing(row.tokens, self.n_gram)


def _completing(tokens: list[int], n: int) -> Iterator[int]:
    """The tokens that would make the last n of a text stand in it twice."""
    before = tokens[len(tokens) - (n - 1) :] if len(tokens) >= n - 1 else None
    for start in range(len(tokens) - n + 1):
        if tokens[start : start + n - 1] == before:
            yield tokens[start + n - 1]


def read_rules(advised: Mapping[str, Any], ends: Sequence[int]) -> Rules:
    """The rules in a generation config; `ends` are the tokens that end a text, which no phrase of one token bans."""

    def ids(name: str) -> tuple[int, ...]:
        value = advised.get(name)
        return () if value is None else tuple(value) if isinstance(value, list) else (value,)

    phrases = tuple(tuple(phrase) for phrase in advised.get("bad_words_ids") or ())
    return Rules(
        first=next(iter(ids("forced_bos_token_id")), None),
        last=ids("forced_eos_token_id"),
        never=ids("suppress_tokens"),
        not_first=ids("begin_suppress_tokens"),
        phrases=tuple(phrase for phrase in phrases if phrase not in {(end,) for end in ends}),
        n_gram=advised.get("no_repeat_ngram_size") or 0,
        least=advised.get("min_length") or 0,
        least_new=advised.get("min_new_tokens") or 0,
    )
