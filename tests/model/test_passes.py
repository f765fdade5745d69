"""Padding, documents, caller's masks, and what a pass refuses."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.ops.masks import Prefix, Window
from tests.model.small import POSITIONS, small
from tests.oracles import close


@pytest.mark.parametrize("positions", list(POSITIONS))
def test_h01_left_padding(positions):
    model = small(positions)
    alone = torch.tensor([[5, 6, 7]])
    padded, present = torch.tensor([[0, 0, 5, 6, 7]]), torch.tensor([[False, False, True, True, True]])
    with torch.no_grad():
        assert close(model(padded, present=present)[:, -1], model(alone)[:, -1])
        for row, mask in ((alone, None), (padded, present)):
            state, tokens, out = model.new_state(), [], model(row, present=mask, state=(s := model.new_state()))
            for _ in range(6):
                tokens.append(int(out[0, -1].argmax()))
                out = model(torch.tensor([[tokens[-1]]]), state=s)
            assert state.length == 0
            assert tokens == _greedy(model, alone, 6)


def _greedy(model, tokens, n):
    new = []
    for _ in range(n):
        new.append(int(model(tokens)[0, -1].argmax()))
        tokens = torch.cat([tokens, torch.tensor([[new[-1]]])], 1)
    return new


@pytest.mark.parametrize("positions", list(POSITIONS))
@pytest.mark.parametrize("windows", [(None, None), (3, None)])
def test_packed_documents_equal_separate_ones(positions, windows):
    model = small(positions, windows=windows)
    tokens = torch.randint(0, 50, (2, 12))
    documents = torch.tensor([[7] * 4 + [8] * 7 + [9], [1] * 12])
    with torch.no_grad():
        packed = model(tokens, documents=documents)
        for start, stop in ((0, 4), (4, 11), (11, 12)):
            assert close(packed[:1, start:stop], model(tokens[:1, start:stop]))
        assert close(packed[1:], model(tokens[1:]))


def test_packed_documents_with_padding_between():
    model = small("rotary")
    tokens = torch.randint(0, 50, (1, 9))
    documents = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2]])
    present = torch.tensor([[1, 1, 0, 1, 0, 1, 1, 1, 0]], dtype=torch.bool)
    with torch.no_grad():
        packed = model(tokens, documents=documents, present=present)
        assert close(packed[:, [0, 1, 3]], model(tokens[:, [0, 1, 3]]))
        assert close(packed[:, [5, 6, 7]], model(tokens[:, [5, 6, 7]]))


@pytest.mark.parametrize("positions", list(POSITIONS))
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_number_of_padding_does_not_matter(positions, number):
    model = small(positions, windows=(3, None))
    tokens = torch.tensor([[9, 5, 6, 0, 7, 8, 4, 3]])
    present = torch.tensor([[False, True, True, False, True, True, True, True]])
    documents = torch.tensor([[number, 1, 1, number, 1, 1, 2, 2]])
    with torch.no_grad():
        packed = model(tokens, present=present, documents=documents)
        assert close(packed[:, [1, 2, 4, 5]], model(tokens[:, [1, 2, 4, 5]]))
        assert close(packed[:, 6:], model(tokens[:, 6:]))


def test_each_run_of_a_number_is_a_document():
    model, tokens = small(), torch.randint(0, 50, (1, 6))
    with torch.no_grad():
        packed = model(tokens, documents=torch.tensor([[0, 0, 1, 1, 0, 0]]))
        for start in (0, 2, 4):
            assert close(packed[:, start : start + 2], model(tokens[:, start : start + 2]))


def test_a_callers_mask_is_added_to_each_layers_own():
    with torch.no_grad():
        tokens = torch.randint(0, 50, (2, 9))
        model = small(windows=(None, None))
        narrow = small(windows=(3, 3))
        narrow.load_state_dict(model.state_dict())
        assert close(model(tokens, mask=Window(3)), narrow(tokens))
        both_ways = small(kind="full")
        both_ways.load_state_dict(model.state_dict())
        # ANDed, so a prefix can't open what the layer closes.
        assert close(model(tokens, mask=Prefix(torch.tensor([9, 9]))), model(tokens))
        assert not close(both_ways(tokens), model(tokens))


def test_an_encoder_sees_both_ways_and_within_its_window():
    model = small(kind="full", windows=(2,))
    tokens = torch.randint(0, 50, (1, 8))
    other = tokens.clone()
    other[0, 5] = (other[0, 5] + 1) % 50
    with torch.no_grad():
        changed = (model(tokens) - model(other)).abs().amax(-1)[0] > 1e-6
    assert changed.tolist() == [False, False, False, True, True, True, True, True]


def test_last_gives_the_same_numbers():
    model, tokens = small(), torch.randint(0, 50, (2, 9))
    with torch.no_grad():
        assert close(model(tokens, last=2), model(tokens)[:, -2:])
        assert model(tokens, last=50).shape == (2, 9, 50)


@pytest.mark.parametrize("backend", ["reference", "tiled", "sdpa"])
def test_backends_agree_on_a_model(backend):
    model, tokens = small(windows=(3, None)), torch.randint(0, 50, (2, 11))
    present = torch.ones(2, 11, dtype=torch.bool)
    present[0, :4] = False
    with torch.no_grad():
        expected = model(tokens, present=present, backend="reference")
        assert close(model(tokens, present=present, backend=backend), expected)


def test_what_a_pass_refuses(without_shape_checks):
    model = small("learned")
    ok = torch.zeros(1, 3, dtype=torch.long)
    cases = [
        ((torch.tensor([[50]]),), {}, "token 50 is not in this model's vocabulary of 50"),
        ((torch.tensor([[-1]]),), {}, "token -1"),
        ((torch.zeros(1, 0, dtype=torch.long),), {}, "at least one"),
        ((torch.zeros(0, 3, dtype=torch.long),), {}, "at least one"),
        ((torch.zeros(1, 65, dtype=torch.long),), {}, "65 tokens long, and this model has positions for 64"),
        ((ok,), {"present": torch.ones(1, 2, dtype=torch.bool)}, "present has shape"),
        ((ok,), {"documents": ok, "state": model.new_state()}, "documents"),
        ((ok,), {"backend": "fast"}, "fast"),
    ]
    for args, options, words in cases:
        with pytest.raises(ClearheadError, match=words):
            model(*args, **options)
