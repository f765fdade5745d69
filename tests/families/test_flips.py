"""The negative control: with any option wrong, the numbers are others, so equal numbers mean right options."""

from __future__ import annotations

import pytest

from clearhead.errors import ClearheadError
from tests import tiny
from tests.families.figures import note_flip, note_unmoved
from tests.families.flips import flips, why_exempt, wrong_model
from tests.families.pairs import Pair, named, worst

LEAST = 1e-4


@pytest.mark.parametrize("pair", tiny.cases(), indirect=True, ids="-".join)
def test_every_option_matters(pair: Pair) -> None:
    right, _ = pair.whole
    still: list[str] = []
    for flip in flips(pair.ours.config):
        why = why_exempt(flip.address, dict(pair.tiny.exempt))
        if why is not None:
            note_unmoved(pair.family, flip.address, why)
            continue
        try:
            model = wrong_model(pair.ours, flip.config)
            if model is None:
                continue  # a size of the weights: what is stored decides it
            moved = worst(named(pair.ask(pair.inputs, model)), right)
        except ClearheadError:
            continue  # a model that refuses these inputs is not mistaken for the right one
        note_flip(pair.family, moved, f"{flip.address}: {flip.change}")
        if not moved > LEAST:
            still.append(f"{flip.address}: {flip.change} moves the output by {moved:.1e}")
    assert not still, "\n".join(still)
