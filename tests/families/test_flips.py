"""The negative control: with any option wrong, the numbers are others, so equal numbers mean right options."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.taps import Recorder
from tests import tiny
from tests.families.figures import note_flip, note_unmoved
from tests.families.flips import flips, matching, wrong_model
from tests.families.pairs import Pair, named, worst

LEAST = 1e-4


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("family_pairs", list(tiny.families()), indirect=True)
def test_every_option_matters(family_pairs: list[Pair]) -> None:
    """Each change is tried in the family's configs until it shows in one of them."""
    shown: set[str] = set()
    refused: set[str] = set()
    still: dict[str, list[str]] = {}
    for pair in family_pairs:
        for flip in flips(pair.ours.config):
            if flip.option in shown:
                continue
            why = flip.why_not or matching(flip.address, pair.tiny.exempt)
            if why is not None:
                note_unmoved(pair.family, flip.address, why)
                continue
            model = wrong_model(pair.ours, flip.config)
            if model is None:
                continue  # other sizes: these weights could not be loaded
            try:
                moved = worst(outputs(pair, model), outputs(pair, pair.ours))
            except (ClearheadError, RuntimeError, ValueError):
                refused.add(flip.option)  # nor could it be run
                continue
            if moved > LEAST:
                shown.add(flip.option)
                note_flip(pair.family, moved, f"{flip.address}: {flip.change}")
            else:
                still.setdefault(flip.option, []).append(f"{pair.name}: {flip.address}: {flip.change}: {moved:.1e}")
    hidden = [line for option, lines in still.items() if option not in shown for line in lines]
    assert not hidden, "these change the output by less than 1e-4:\n" + "\n".join(hidden)
    assert len(refused) < len(shown) / 4, sorted(refused)


def outputs(pair: Pair, model: Any) -> dict[str, Tensor]:
    """What a model gives; of one with an encoder beside the decoder, what the encoder makes of the source too."""
    recorder = Recorder(["encoder.final"])
    return {**named(pair.ask(pair.inputs, model, taps=recorder)), **recorder.values}
