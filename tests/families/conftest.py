"""Each tiny model is made, saved and loaded once a worker."""

from __future__ import annotations

import pytest

from tests import tiny
from tests.families.pairs import Pair, make_pair

_MADE: dict[tuple[str, str], Pair] = {}


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One case: (family, config)."""
    return _pair(request.param, tmp_path_factory)


@pytest.fixture
def family_pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    """All cases of a family."""
    return [_pair(case, tmp_path_factory) for case in tiny.cases() if case[0] == request.param]


def _pair(case: tuple[str, str], folders: pytest.TempPathFactory) -> Pair:
    if case not in _MADE:
        _MADE[case] = make_pair(*case, folders.mktemp("-".join(case)))
    return _MADE[case]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A case stays with one worker. `make check` takes each family's ordinary model, `make test` all of them."""
    ordinary = {(records[0].family, next(iter(records[0].configs))) for records in tiny.families().values()}
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        case = parameters.get("pair")
        if isinstance(case, tuple):
            item.add_marker(pytest.mark.xdist_group("-".join(case)))
        if (isinstance(case, tuple) and case not in ordinary) or "family_pairs" in parameters:
            item.add_marker(pytest.mark.slow)
