"""New text as it comes: what may be shown already, what is held back because it may begin a stop text, and the end."""

from __future__ import annotations

from collections.abc import Sequence


class Text:
    """Takes decoded pieces, gives out what is certain to belong to the answer.

    A stop ends the text where it begins. Of several, the one complete first wins, character by character, and of
    those complete at once the one that began first: so the answer does not depend on how tokens cut the text.
    """

    def __init__(self, stops: Sequence[str] = (), budget: int | None = None) -> None:
        self.shown = ""
        self.matched: str | None = None
        """The stop found."""
        self.spent = False
        """Whether the character budget is used up."""
        self._held = ""
        self._stops = tuple(stops)
        self._budget = budget

    @property
    def ended(self) -> bool:
        return self.spent or self.matched is not None

    def push(self, piece: str) -> str:
        """Add a piece; returns what became certain, perhaps nothing. Nothing is added after the end."""
        if self.ended or not piece:
            return ""
        self._held += piece
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if found:
            _, start, self.matched = min(found)
            certain, self._held = self._held[:start], ""
        else:
            n = self._doubtful()
            certain, self._held = self._held[: len(self._held) - n], self._held[len(self._held) - n :]
        return self._show(certain)

    def flush(self) -> str:
        """No more pieces come: what was held back belongs to the answer after all."""
        certain, self._held = self._held, ""
        return self._show(certain) if not self.ended else ""

    def _doubtful(self) -> int:
        """How many characters at the end may be the beginning of a stop."""
        longest = 0
        for stop in self._stops:
            for n in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:n]):
                    longest = n
                    break
        return longest

    def _show(self, certain: str) -> str:
        if self._budget is not None and len(self.shown) + len(certain) >= self._budget:
            # A stop found behind the budget's last character was never reached.
            if self.matched is None or len(self.shown) + len(certain) > self._budget:
                self.spent, self.matched = True, None
            certain = certain[: self._budget - len(self.shown)]
        self.shown += certain
        return certain
