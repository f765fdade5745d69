"""Prefixes found by their content: what was read for one prompt is not read again for another that begins alike."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from clearhead.errors import UsageError
from clearhead.generation.prefix import Prefix, Start, common


@dataclass(frozen=True)
class Uses:
    """What a store was good for so far."""

    asked: int = 0
    """How many prompts were looked up."""
    found: int = 0
    """For how many of them something was there."""
    tokens_asked: int = 0
    """How many tokens they had."""
    tokens_found: int = 0
    """How many of those need not be read."""
    dropped: int = 0
    """How many prefixes had to go for others."""


class Prefixes:
    """What one model has read, within a bound of bytes; what was not used for longest goes first.

    Safe to use from several threads. A prefix that is dropped meanwhile can still be used by whoever holds it.
    """

    def __init__(self, max_bytes: int, *, shortest: int = 16) -> None:
        """
        Args:
            max_bytes: what all prefixes may take together.
            shortest: fewer tokens in common are not worth a copy of the memory.

        Raises:
            UsageError: a bound below 0, or nothing as the shortest.
        """
        if max_bytes < 0 or shortest < 1:
            raise UsageError(f"max_bytes is {max_bytes} and shortest {shortest}; give at least 0 and 1")
        self.max_bytes = max_bytes
        self.shortest = shortest
        self._kept: list[Prefix] = []
        """That used last stands last."""
        self._uses = Uses()
        self._lock = threading.Lock()

    def find(self, tokens: Sequence[int]) -> Start | None:
        """The prefix that saves most of a prompt, and how much of it; None where none does. The last token of the
        prompt is always left to read.
        """
        tokens = list(tokens)
        with self._lock:
            shared = [prefix.shared(tokens) for prefix in self._kept]
            n = max(shared, default=0)
            place = shared.index(n) if n >= self.shortest else None
            n = 0 if place is None else n
            uses = self._uses
            self._uses = replace(
                uses,
                asked=uses.asked + 1,
                found=uses.found + (place is not None),
                tokens_asked=uses.tokens_asked + len(tokens),
                tokens_found=uses.tokens_found + n,
            )
            if place is None:
                return None
            prefix = self._kept.pop(place)
            self._kept.append(prefix)
            return Start(prefix, n)

    def put(self, prefix: Prefix) -> bool:
        """Keep a prefix, unless a longer one serves for it or it is larger than all may be; whether it is there now.

        One that this one serves for goes, and then those that were not used for longest, until there is room.
        """
        with self._lock:
            longer = next((other for other in self._kept if serves(other, prefix)), None)
            if longer is not None:
                self._kept.remove(longer)
                self._kept.append(longer)
                return True
            if prefix.nbytes > self.max_bytes:
                return False
            # What another model read, or this one before its weights changed, is of no use any more.
            mine = [other for other in self._kept if other.model == prefix.model]
            self._kept = [*(other for other in mine if not serves(prefix, other)), prefix]
            n_before, held = len(self._kept), sum(other.nbytes for other in self._kept)
            while held > self.max_bytes:
                held -= self._kept.pop(0).nbytes
            self._uses = replace(self._uses, dropped=self._uses.dropped + n_before - len(self._kept))
            return True

    def clear(self) -> None:
        """Let go of all, as when the model's weights have changed."""
        with self._lock:
            self._kept.clear()

    @property
    def uses(self) -> Uses:
        """What it was good for so far."""
        return self._uses

    @property
    def nbytes(self) -> int:
        """Bytes that all prefixes take together."""
        with self._lock:
            return sum(prefix.nbytes for prefix in self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Prefix]:
        """From what was not used for longest to what was used last."""
        with self._lock:
            return iter(list(self._kept))


def serves(prefix: Prefix, other: Prefix) -> bool:
    """Whether one is good for every prompt that another one is good for."""
    n = other.memory.n
    if n > prefix.memory.n or prefix.model != other.model or common(prefix.tokens[:n], other.tokens[:n]) < n:
        return False
    return n == prefix.memory.n or prefix.memory.least <= max(other.memory.least, 1)
