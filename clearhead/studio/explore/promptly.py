"""An answer at once where it is a matter of looking up, and from a thread of its own where a model has to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clearhead.studio.operations import Answer


def promptly(is_there: bool, answer: Callable[[], Answer]) -> Answer | Iterator[Answer]:
    """What `answer()` gives: now, if all that it is made from is there. If not, as a generator, which the socket works
    on beside its few threads for what is short: a load or a pass there would hold up the sliders of every tab.
    """
    return answer() if is_there else _later(answer)


def _later(answer: Callable[[], Answer]) -> Iterator[Answer]:
    yield answer()
