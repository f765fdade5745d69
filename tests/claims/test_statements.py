"""No statement of the lesson is without a claim or a reason why there is none, and none has both."""

from __future__ import annotations

import pytest

from clearhead.claims.statements import N_STATEMENTS, REASONS, measured_by

MEASURED = measured_by()


@pytest.mark.parametrize("number", range(1, N_STATEMENTS + 1))
def test_a_statement_is_measured_or_it_is_said_why_not(number: int) -> None:
    assert bool(MEASURED[number]) != (number in REASONS), MEASURED[number] or "neither claim nor reason"


def test_reasons_are_of_statements_that_there_are() -> None:
    assert set(REASONS) <= set(MEASURED) and len(MEASURED) == N_STATEMENTS
    assert all(reason.endswith(".") for reason in REASONS.values())
