"""Every statement of the lesson: the claims that measure it, or why it can't be measured."""

from __future__ import annotations

from collections.abc import Mapping

from clearhead.claims.catalogue import find, names

N_STATEMENTS = 65
REASONS: Mapping[int, str] = {
    17: "That the paper of 2017 dropped the recurrence is history, and no property of a model that could be measured. "
    "What it gained by that is: path-length-one, training-speed, cost-of-2017.",
}


def measured_by() -> dict[int, list[str]]:
    """For every statement, the claims whose source names it."""
    found: dict[int, list[str]] = {number: [] for number in range(1, N_STATEMENTS + 1)}
    for name in names():
        for number in find(name).source.statements:
            found[number].append(name)
    return found
