"""The stream as a growing sum."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.accumulated import accumulated
from clearhead.taps import catalogue
from tests.lens.placed import MASKED_HEAD, NORMS, TOKENS, placed, pushed
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]


@pytest.mark.parametrize("placement", NORMS)
def test_parts_are_what_plain_arithmetic_pushes_to_the_end(placement):
    model = placed(placement)
    found, expected = accumulated(model, TOKENS), pushed(model, {})
    for i in range(2):
        for kind in ("mixer", "ffn"):
            label = f"layer {i} {kind}"
            assert error(found.parts_PBTD[found.row_labels.index(label)], expected[label]) <= F64
    embedding = [i for i, label in enumerate(found.row_labels) if label.startswith("embedding")]
    assert error(found.parts_PBTD[embedding].sum(0), expected["embedding"]) <= F64
    assert error(found.stream_PBTD, found.parts_PBTD.cumsum(0)) == 0
    assert error(found.stream_PBTD[-1], look(model, TOKENS, "final")["final"]) <= F64
    assert error(found.values, found.stream_PBTD[:, 0].norm(dim=-1)) <= F64


@pytest.mark.parametrize("placement", ["pre", "parallel", "sandwich", "out"])
def test_without_the_norm_it_is_the_stream_itself(placement):
    model = placed(placement)
    found, seen = accumulated(model, TOKENS, normed=False), look(model, TOKENS, *catalogue(model))
    places = {"mixer": "resid_mid", "ffn": "resid_post"}
    for i in range(2):
        for kind, place in places.items():
            row = found.row_labels.index(f"layer {i} {kind}")
            assert error(found.stream_PBTD[row], seen[f"layers.{i}.{place}"]) <= F64


@pytest.mark.parametrize("placement", NORMS)
@pytest.mark.parametrize("head", [None, MASKED_HEAD], ids=["plain", "masked"])
def test_the_last_logit_is_the_models(placement, head):
    model = placed(placement, head=head)
    for normed in (True, False):
        found = accumulated(model, TOKENS, target=7, normed=normed, row=1)
        with torch.no_grad():
            assert error(found.values[-1], model(TOKENS)[1, :, 7]) <= F64
        assert len(found.values) == len(found.row_labels)
        assert found.title == "The stream so far: logit of 7"


def test_what_is_refused():
    model = placed()
    with pytest.raises(ClearheadError, match="no row 2"):
        accumulated(model, TOKENS, row=2)
    with pytest.raises(ClearheadError, match=r"call model\.eval"):
        accumulated(model.train(), TOKENS)
