"""The merges that a SentencePiece vocabulary implies.

SentencePiece stores no merges: it joins the two neighbours whose union is the best-scored token. As a list of merges
that is every way to cut a token into two tokens, in order of the token's score. Gemma's 262,144 tokens have half a
million such cuts among 1.2 million tries; trying them with a Python dict takes four times as long as the hashes here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

# Any odd number has an inverse modulo 2**64; this one is 2**64 over the golden ratio.
BASE = 0x9E3779B97F4A7C15


def derive_merges(tokens: Sequence[str], scores: NDArray[np.float64]) -> list[tuple[str, str]]:
    """Every (left, right) with left, right and left + right among `tokens`, the best first.

    Ordered by the score of the union, then the longer left part, then the longer right part, then by position, which
    is the order `transformers` gives them. `tokens` are distinct and not empty; one score each.
    """
    if not len(tokens):
        return []
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    text = _Text("".join(tokens))
    table = _Table(text.hash(starts, ends))

    owner = np.repeat(np.arange(len(tokens)), lengths)  # of each character: the token it stands in
    cut = np.arange(len(owner))
    inner = cut > starts[owner]
    cut, owner = cut[inner], owner[inner]
    left = table.find(text.hash(starts[owner], cut))
    cut, owner, left = cut[left >= 0], owner[left >= 0], left[left >= 0]
    right = table.find(text.hash(cut, ends[owner]))
    owner, left, right = owner[right >= 0], left[right >= 0], right[right >= 0]

    order = np.lexsort((owner, -lengths[right], -lengths[left], -scores[owner]))
    at = tokens.__getitem__
    return list(zip(map(at, left[order].tolist()), map(at, right[order].tolist()), strict=True))


class _Text:
    """A text whose every piece can be hashed at once: h(a..b) = sum of r(c_i) * BASE ** (i - a), modulo 2**64.

    r gives each character a random number, so that two different pieces agree by chance only (1 in 2**64).
    """

    def __init__(self, text: str) -> None:
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        numbers = np.random.default_rng(0).integers(0, 2**64 - 1, int(points.max()) + 1, np.uint64, endpoint=True)
        powers = _powers(BASE, len(points))
        self.inverse_powers = _powers(pow(BASE, -1, 2**64), len(points))
        self.sums = np.zeros(len(points) + 1, np.uint64)
        np.cumsum(numbers[points] * powers, out=self.sums[1:])

    def hash(self, begins: Ints, ends: Ints) -> Hashes:
        hashes: Hashes = (self.sums[ends] - self.sums[begins]) * self.inverse_powers[begins]
        return hashes


def _powers(base: int, count: int) -> Hashes:
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


class _Table:
    """From a hash to its position: open addressing, a quarter full, all look-ups at once."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes
        bits = (4 * len(hashes)).bit_length()
        self.shift = np.uint64(64 - bits)
        self.last = (1 << bits) - 1
        self.places = np.full(1 << bits, -1, np.int64)
        slot = self._slots(hashes)
        waiting = np.arange(len(hashes))
        while len(waiting):
            free = waiting[self.places[slot[waiting]] < 0]
            self.places[slot[free]] = free  # of several that want one slot the last has it, and the others go on
            waiting = waiting[self.places[slot[waiting]] != waiting]
            slot[waiting] = (slot[waiting] + 1) & self.last

    def _slots(self, hashes: Hashes) -> Ints:
        return (hashes >> self.shift).astype(np.int64)

    def find(self, hashes: Hashes) -> Ints:
        """The position of each hash, or -1."""
        found = np.full(len(hashes), -1, np.int64)
        slot = self._slots(hashes)
        waiting = np.arange(len(hashes))
        while len(waiting):
            place = self.places[slot[waiting]]
            same = (place >= 0) & (self.hashes[place] == hashes[waiting])
            found[waiting[same]] = place[same]
            waiting = waiting[(place >= 0) & ~same]
            slot[waiting] = (slot[waiting] + 1) & self.last
        return found
