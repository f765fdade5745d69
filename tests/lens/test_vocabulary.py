"""A head in words: its output is what attribution says of it, and OV is the product of its matrices."""

from __future__ import annotations

import json

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens.attribution import attribution
from clearhead.lens.vocabulary import head_output, ov
from tests.families.pairs import make_pair
from tests.lens.placed import MASKED_HEAD, NORMS, TOKENS, K, V, placed
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]


@pytest.mark.parametrize("placement", NORMS)
@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 3)])
def test_what_a_head_writes_is_what_attribution_gives_it(placement, layer, head):
    model, text = placed(placement), TOKENS[:1]
    words = head_output(model, text, layer, head, top=V)
    for place in (0, 4, 6):
        for column in (0, 1, V - 1):
            token = int(words.ids[place, column])
            found = attribution(model, text, token, by="head", position=place)
            assert float(words.values[place, column]) == pytest.approx(float(found.values[layer, head]), abs=1e-10)
    assert words.cells[0][0] == str(int(words.ids[0, 0]))
    ranks = [words.ids[t].tolist().index(int(text[0, t])) + 1 for t in range(7)]
    assert words.own_ranks.tolist() == ranks
    assert json.loads(json.dumps(words.to_json()))["own_ranks"] == ranks
    assert words.copying == sum(rank == 1 for rank in ranks) / 7


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_ov_is_the_product_of_four_matrices(n_kv_heads):
    model, tokens = placed("pre", n_kv_heads=n_kv_heads), [3, 11, 30]
    words = ov(model, 1, 2, tokens, top=V)
    block, group = model.layers[1], 2 * n_kv_heads // 4
    with torch.no_grad():
        x = model.embed.norm(model.embed.tokens.weight[tokens] * 3.0)
        v = block.mixer_norm.pre(x) @ block.mixer.v_proj.weight[K * group : K * (group + 1)].T
        written = v @ block.mixer.o_proj.weight[:, K * 2 : K * 3].T
        scores = (written - written.mean(-1, keepdim=True)) * model.norm.weight @ model.unembedding.T * 0.8
    assert error(words.values, scores.sort(descending=True).values) <= F64
    assert words.row_labels == ["3", "11", "30"]


def test_a_head_that_copies_says_its_own_token():
    """OV made the identity on the vocabulary: every token is its own first word."""
    model = placed("parallel", n_kv_heads=4)
    with torch.no_grad():
        for norm in (model.embed.norm, model.layers[0].mixer_norm.pre, model.norm):
            norm.weight.fill_(1.0 - norm.config.offset)
        model.embed.norm.bias.zero_()
        directions = torch.eye(K, 16).double()
        model.embed.tokens.weight.zero_()
        model.embed.tokens.weight[:3, :3] = torch.eye(3).double()
        model.head.weight.copy_(model.embed.tokens.weight)
        attention = model.layers[0].mixer
        attention.v_proj.weight[K : 2 * K] = directions
        attention.o_proj.weight[:, K : 2 * K] = directions.T
    assert ov(model, 0, 1, [0, 1, 2]).copying == 1.0
    with torch.no_grad():
        attention.o_proj.weight[:, K : 2 * K] *= -1
    assert ov(model, 0, 1, [0, 1, 2]).copying == 0.0


def test_what_is_refused(tmp_path):
    model = placed()
    for layer, head, message in ((2, 0, r"no attention \(mixer\) in layer 2.* 0, 1"), (0, 4, "its heads are 0 to 3")):
        with pytest.raises(ClearheadError, match=message):
            head_output(model, TOKENS[:1], layer, head)
        with pytest.raises(ClearheadError, match=message):
            ov(model, layer, head, 3)
    with pytest.raises(ClearheadError, match="there are 2 rows"):
        head_output(model, TOKENS, 0, 0)
    with pytest.raises(ClearheadError, match="has an activation"):
        head_output(placed(head=MASKED_HEAD), TOKENS[:1], 0, 0)
    pair = make_pair("deepseek_v3", "latent", tmp_path)
    with pytest.raises(ClearheadError, match="latent vector"):
        ov(pair.ours, 0, 0, 3)
    assert head_output(pair.ours, pair.inputs.row(0).given(), 0, 0).values.shape == (20, 5)
