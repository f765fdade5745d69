"""What a token is chosen from: the scores of the vocabulary, or of a few tokens that are sure to be enough."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """Scores of the next token of each row of a batch."""

    logits_BC: Tensor
    """Of C tokens; of all V in order where `ids_BC` is None."""
    ids_BC: Tensor | None = None
    """Which tokens those are, in rising order in each row; all others can't be chosen. Rows with fewer tokens are
    filled up at minus infinity."""

    @property
    def all_BV(self) -> Tensor:
        """Those of the whole vocabulary, by who needs them."""
        assert self.ids_BC is None
        return self.logits_BC

    def rows(self, rows: list[int]) -> Scores:
        """Those of these rows."""
        return Scores(self.logits_BC[rows], None if self.ids_BC is None else self.ids_BC[rows])
