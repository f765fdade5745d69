"""Reading ahead: a draft of what may come next is read in one pass with the next token, and what is right is kept.

A pass over a few tokens takes little longer than one over a single token: what takes time is to read the weights.
Behind each token of the draft the model's own choice is made, with all settings, as if there were no draft; where the
choice is another, it stands, and what was read beyond is taken back. So a greedy text is what it would have been, and
so is one drawn by a seed with `lookup`: the draft decides only what is read together. A smaller model's draft is drawn
itself; to keep as much of it as possible, a token is accepted with probability min(1, p / q), and what replaces it is
drawn from max(0, p - q) (Leviathan 2023, Chen 2023), which together gives p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clearhead.generation.drafts import Draft, Drafter
from clearhead.generation.drawing import Drawing
from clearhead.generation.kept import Kept
from clearhead.generation.rows import Row
from clearhead.generation.scores import Scores
from clearhead.state import State

FIRST = 3
"""So many tokens are drafted first."""
UNREAD = 8
"""With more tokens still to be read than this, they are read without a draft."""


@dataclass(frozen=True)
class Reading:
    """Where a text is read to, and how more of it is read."""

    state: State
    ask: Callable[[list[int], int], Scores]
    """Reads these tokens, and gives the scores behind each of so many last ones, (tokens, V)."""
    keep: bool
    """Whether the row gets the state at the end."""


class Pace:
    """How far to read ahead: further while drafts are right, less when they are wrong."""

    def __init__(self, most: int) -> None:
        self.n = min(FIRST, most)
        self._most = most

    def told(self, n_drafted: int, n_right: int) -> None:
        """What became of a draft."""
        if n_drafted:
            self.n = min(2 * self.n if n_right == n_drafted else n_right + 1, self._most)


def write_ahead(
    row: Row, drawing: Drawing, scores: Scores, reading: Reading, drafter: Drafter, pace: Pace
) -> Iterator[None]:
    """Write one text to its end, from the scores behind its prompt; yields after each token."""
    state = reading.state
    n_read = len(row.tokens)
    if row.finish_reason is None:
        drawing.write(scores, state)
        yield
    while row.finish_reason is None:
        unread = row.tokens[n_read:]
        # The last token of all is never read.
        most = min(pace.n, row.most_new - len(row.new) - 1)
        draft = drafter.propose(row, most) if most > 0 and len(unread) <= UNREAD else Draft([])
        n_before = state.length
        scores = reading.ask(unread + draft.tokens, len(draft.tokens) + 1)
        n_right, right = 0, False
        for n in range(len(draft.tokens) + 1):
            drawing.write(scores.rows([n]), state, draft.at(n))
            right = n < len(draft.tokens) and row.tokens[-1] == draft.tokens[n]
            n_right += right
            if row.finish_reason is not None or not right:
                break
            yield
        pace.told(len(draft.tokens), n_right)
        # A text's last token counts as not read, however it came.
        n_kept = n_right - (row.finish_reason is not None and right)
        n_read += _take_back(state, n_before, len(unread), len(draft.tokens), n_kept)
        yield
    if reading.keep:
        row.kept = Kept(
            state=state,
            tokens=list(row.tokens),
            n_read=n_read,
            drawn=list(row.drawn),
            length=state.length,
            stream=row.stream,
        )


def _take_back(state: State, n_before: int, n_unread: int, n_drafted: int, n_kept: int) -> int:
    """Forget what was read of a draft beyond what is kept of it; how many tokens of the text were read, then.

    A state that has one size can only be taken back to before the pass: what was right is read again with the next.
    """
    if n_kept == n_drafted:
        return n_unread + n_drafted
    if state.can_truncate(n_before + n_unread + n_kept):
        state.truncate(n_before + n_unread + n_kept)
        return n_unread + n_kept
    state.truncate(n_before)
    return 0
