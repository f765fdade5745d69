"""Each tiny model is made, saved and loaded once a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.pairs import Pair, make_pair

_MADE: dict[tuple[str, str], Pair] = {}


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: tuple[str, str] = request.param
    if case not in _MADE:
        _MADE[case] = make_pair(*case, tmp_path_factory.mktemp("-".join(case)))
    return _MADE[case]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of a case go to one worker."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if isinstance(params.get("pair"), tuple):
            item.add_marker(pytest.mark.xdist_group("-".join(params["pair"])))
