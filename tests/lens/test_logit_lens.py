"""The logit lens: each layer's stream through the model's own norm and head."""

from __future__ import annotations

import json

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.logit_lens import logit_lens, logit_lens_by_layer
from tests.families.pairs import make_pair
from tests.lens.placed import NORMS, TOKENS, placed
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]


def test_each_layer_is_what_transformers_makes_of_its_hidden_state(tmp_path):
    pair = make_pair("gpt2", "plain", tmp_path)
    x = pair.inputs.row(0)
    theirs = pair.ask_them(x, output_hidden_states=True).hidden_states
    n = len(theirs) - 1
    with torch.no_grad():
        # The last hidden state is normed already.
        logits = [pair.theirs.lm_head(pair.theirs.transformer.ln_f(h[0])) for h in theirs[:n]]
        logits.append(pair.theirs.lm_head(theirs[n][0]))
    found = logit_lens(pair.ours, x.given(), target=9, top=3)
    assert found.row_labels == ["embedding", *(f"layer {i}" for i in range(n))]
    for row, logits_TV in enumerate(logits):
        p_TV = logits_TV.softmax(-1)
        assert error(found.probabilities[row], p_TV.topk(3).values) <= F32
        assert torch.equal(found.ids[row], p_TV.topk(3).indices)
        assert error(found.values[row], p_TV[:, 9]) <= F32
        assert found.ranks[row].tolist() == [sorted(p, reverse=True).index(p[9]) + 1 for p in p_TV.tolist()]
        assert found.cells[row] == [str(i) for i in p_TV.argmax(-1).tolist()]


@pytest.mark.parametrize("placement", NORMS)
def test_the_last_row_is_what_the_model_says(placement):
    model = placed(placement)
    found = logit_lens(model, TOKENS[:1])
    with torch.no_grad():
        p_TV = model(TOKENS[:1])[0].float().softmax(-1)
    assert error(found.values[-1], p_TV.amax(-1)) <= F32
    assert torch.equal(found.ids[-1][:, 0], p_TV.argmax(-1))
    assert found.values.shape == (3, 7) and found.ranks is None
    assert len(found.column_labels) == 7 and len(found.cells) == 3


def test_labels_are_the_texts_tokens_and_the_json_is_plain(model):
    found = logit_lens(model, "keys", top=2)
    assert found.column_labels == look(model, "keys").labels()
    said = json.loads(json.dumps(found.to_json()))
    assert said["cells"] == found.cells and said["ranks"] is None
    assert said["rows"] == ["embedding", "layer 0", "layer 1"]
    # The table has rows that the tokenizer can't write.
    assert all(cell[0] in "·#<" for row in found.cells for cell in row)


def test_several_texts_are_refused():
    with pytest.raises(ClearheadError, match="one text, and there are 2 rows"):
        logit_lens(placed(), TOKENS)


def test_some_places_a_layer_at_a_time():
    model, x = placed(next(iter(NORMS))), TOKENS[:1]
    whole = logit_lens(model, x, target=5)
    tables = list(logit_lens_by_layer(model, x, target=5, positions=[1, -1]))
    assert [len(table.row_labels) for table in tables] == list(range(1, len(model.layers) + 2))
    last = tables[-1]
    assert last.row_labels == whole.row_labels
    assert last.column_labels == [whole.column_labels[1], whole.column_labels[-1]]
    assert torch.equal(last.ids, whole.ids[:, [1, -1]])
    assert error(last.values, whole.values[:, [1, -1]]) <= F32
    assert torch.equal(last.ranks, whole.ranks[:, [1, -1]])
