"""Parts of a model by patterns."""

from __future__ import annotations

import pytest

from clearhead.errors import ClearheadError
from clearhead.training.addresses import matching

NAMES = ("layers.0.mixer.q_proj.weight", "layers.0.mixer.k_proj.weight", "layers.10.ffn.up_proj.weight", "head.weight")


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("*",), (0, 1, 2, 3)),
        (("layers.0.*",), (0, 1)),
        (("layers.0",), (0, 1)),
        (("layers.1",), None),
        (("*.mixer.q_proj*",), (0,)),
        (("head", "*.k_proj"), (1, 3)),
        (("head.weight",), (3,)),
        ((), ()),
    ],
)
def test_what_a_pattern_names(patterns: tuple[str, ...], found: tuple[int, ...] | None) -> None:
    if found is None:
        with pytest.raises(
            ClearheadError, match=r"model.train: no weight of this model is called 'layers.1'; .*layers"
        ):
            matching(NAMES, patterns, "model.train", "weight")
    else:
        assert matching(NAMES, patterns, "model.train", "weight") == [NAMES[i] for i in found]
