"""Direct logit attribution: every part is what plain arithmetic says, and the parts sum to the logit."""

from __future__ import annotations

import json

import pytest
import torch

from clearhead.config import TokenHeadConfig
from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.attribution import attribution
from clearhead.model.transformer import Transformer
from tests import tiny
from tests.families.pairs import make_pair
from tests.lens.placed import MASKED_HEAD, NORMS, TOKENS, F, H, K, V, placed, pushed
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]
places = pytest.mark.parametrize("placement", NORMS)
AT = 5


def read(model: Transformer, part_BTD: torch.Tensor, target: int = 7) -> torch.Tensor:
    """What the head makes of a part of the finished stream."""
    return part_BTD[:, AT] @ model.unembedding[target] * model.head.config.scale


@places
def test_layers(placement):
    model = placed(placement)
    found = attribution(model, TOKENS, 7, position=AT)
    assert found.row_labels == ["layer 0", "layer 1"] and found.column_labels == ["mixer", "ffn"]
    parts = pushed(model, {})
    for i in range(2):
        for j, kind in enumerate(("mixer", "ffn")):
            assert error(found.by_row[:, i, j], read(model, parts[f"layer {i} {kind}"])) <= F64
    embedding = sum(value for name, value in found.others.items() if name.startswith("embedding"))
    assert error(embedding, read(model, parts["embedding"])) <= F64
    biases = sum(value for name, value in found.others.items() if "norm bias" in name)
    assert error(torch.as_tensor(biases).expand(2), read(model, parts["bias"])) <= F64
    with torch.no_grad():
        assert error(found.logit, model(TOKENS)[:, AT, 7]) <= F64
    assert found.error <= F64
    assert error(found.values, found.by_row.mean(0)) == 0


@places
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_heads(placement, n_kv_heads):
    model = placed(placement, n_kv_heads=n_kv_heads)
    seen = look(model, TOKENS, "layers.*.mixer.z")
    pieces = {
        f"layer {i} mixer: {h}": seen[f"layers.{i}.mixer.z"][:, h]
        @ model.layers[i].mixer.o_proj.weight[:, K * h : K * (h + 1)].T
        for i in range(2)
        for h in range(H)
    }
    found, parts = attribution(model, TOKENS, 7, position=AT, by="head"), pushed(model, pieces)
    assert found.column_labels == ["0", "1", "2", "3"]
    for i in range(2):
        for h in range(H):
            assert error(found.by_row[:, i, h], read(model, parts[f"layer {i} mixer: {h}"])) <= F64
    assert error(found.others["layer 1 ffn"], read(model, parts["layer 1 ffn"])) <= F64
    assert found.error <= F64


@places
def test_neurons(placement):
    model = placed(placement)
    seen = look(model, TOKENS, "layers.*.ffn.post")
    pieces = {
        f"layer {i} ffn: {f}": seen[f"layers.{i}.ffn.post"][..., f, None] * model.layers[i].ffn.down_proj.weight[:, f]
        for i in range(2)
        for f in range(F)
    }
    found, parts = attribution(model, TOKENS, 7, position=AT, by="neuron"), pushed(model, pieces)
    for i in range(2):
        for f in range(F):
            assert error(found.by_row[:, i, f], read(model, parts[f"layer {i} ffn: {f}"])) <= F64
    assert found.error <= F64


@places
def test_positions(placement):
    model = placed(placement)
    seen = look(model, TOKENS, "layers.*.mixer.pattern", "layers.*.mixer.v")
    pieces = {}
    for i in range(2):
        pattern, v = seen[f"layers.{i}.mixer.pattern"], seen[f"layers.{i}.mixer.v"].repeat_interleave(2, dim=1)
        for s in range(TOKENS.shape[1]):
            z = pattern[..., s, None] * v[:, :, s, None]
            pieces[f"layer {i} mixer: {s}"] = z.transpose(1, 2).flatten(2) @ model.layers[i].mixer.o_proj.weight.T
    found, parts = attribution(model, TOKENS, 7, position=AT, by="position"), pushed(model, pieces)
    assert found.row_labels == ["embedding", *(f"layer {i} {kind}" for i in range(2) for kind in ("mixer", "ffn"))]
    for i in range(2):
        for s in range(TOKENS.shape[1]):
            assert error(found.by_row[:, 1 + 2 * i, s], read(model, parts[f"layer {i} mixer: {s}"])) <= F64
        assert error(found.by_row[:, 2 + 2 * i, AT], read(model, parts[f"layer {i} ffn"])) <= F64
    assert error(found.by_row[:, 0, AT], read(model, parts["embedding"])) <= F64
    assert not found.by_row[:, :, AT + 1 :].any()  # nothing comes from what is not seen yet
    assert found.error <= F64


def test_the_difference_of_two_answers_is_the_difference_of_their_attributions():
    model = placed("sandwich")
    difference = attribution(model, TOKENS, [7, 9], against=3, position=AT)
    ours, theirs = (attribution(model, TOKENS, token, position=AT) for token in ([7, 9], 3))
    assert error(difference.by_row, ours.by_row - theirs.by_row) <= F64
    assert error(difference.logit, ours.logit - theirs.logit) <= F64
    assert difference.title == "The logit of each row's token less that of 3, by layer"


def test_each_row_may_have_a_place_of_its_own_and_the_likeliest_token_is_asked_about():
    model = placed()
    found = attribution(model, TOKENS, position=[2, -1])
    with torch.no_grad():
        best = model(TOKENS)[[0, 1], [2, 6]].max(-1)
    assert error(found.logit, best.values) <= F64
    alone = attribution(model, TOKENS[1:], int(best.indices[1]))
    assert error(found.by_row[1:], alone.by_row) <= F64


def test_a_soft_cap_is_left_out_and_said():
    model = placed(head=TokenHeadConfig(softcap=2.0))
    found = attribution(model, TOKENS, 7)
    assert found.note == "of the logit before the soft-cap of 2"
    assert found.error <= F64
    with torch.no_grad():
        assert error(2 * torch.tanh(found.total / 2), model(TOKENS)[:, -1, 7]) <= F64


@places
def test_the_transform_of_a_masked_head_is_frozen(placement):
    """gelu(x) = x * gate, so that parts of x still sum."""
    model = placed(placement, head=MASKED_HEAD)
    for by in ("layer", "head", "neuron", "position"):
        assert attribution(model, TOKENS, 7, position=AT, by=by).error <= F64
    y = model.head.transform.dense(look(model, TOKENS, "final")["final"][:, AT])
    gated = y * torch.nn.functional.gelu(y) / y
    logit = model.head.transform.norm(gated) @ model.unembedding[7] + model.head.bias[7]
    assert error(attribution(model, TOKENS, 7, position=AT).total, logit) <= F64


def test_as_json():
    found = attribution(placed(), TOKENS, 7, by="neuron")
    said = json.loads(json.dumps(found.to_json()))
    assert said["columns"] == [str(f) for f in range(F)] and len(said["values"][0]) == F
    total = sum(map(sum, said["values"])) + sum(said["others"].values())
    assert total == pytest.approx(said["logit"])
    best = found.top(1)[0]
    assert abs(best.value) == found.values.abs().max()


def test_what_is_refused():
    model = placed()
    with pytest.raises(ClearheadError, match=r"call model\.eval"):
        attribution(model.train(), TOKENS)
    model.eval()
    for wrong, message in (
        ({"target": V}, "there is no token 40"),
        ({"target": [1, 2, 3]}, "3 target tokens for 2 rows"),
        ({"target": "word"}, "without a tokenizer"),
        ({"position": 7}, "position is 7"),
        ({"position": [1]}, "position is"),
        ({"by": "letter"}, "by is 'letter'"),
    ):
        with pytest.raises(ClearheadError, match=message):
            attribution(model, TOKENS, **wrong)
    with pytest.raises(ClearheadError, match="state="):
        attribution(model, {"tokens": TOKENS, "state": model.new_state()})
    present = torch.ones(2, 7, dtype=torch.bool)
    present[1, 5:] = False
    with pytest.raises(ClearheadError, match="padding"):
        attribution(model, {"tokens": TOKENS, "present": present})
    assert attribution(model, {"tokens": TOKENS, "present": present}, position=[6, 4]).error <= F64


@pytest.mark.parametrize(
    ("case", "by", "message"),
    [
        (("vit", "classifier"), "layer", "gives labels, not tokens"),
        (("clip", None), "layer", "two towers"),
        (("mamba", "plain"), "head", "no attention"),
        (("mamba", "plain"), "neuron", "no feed-forward"),
    ],
)
def test_a_model_without_the_part(case, by, message, tmp_path):
    family, name = case
    pair = make_pair(family, name or next(iter(tiny.families()[family][0].configs)), tmp_path)
    with pytest.raises(ClearheadError, match=message):
        attribution(pair.ours, pair.inputs.given(), by=by)


def test_a_token_said_in_words():
    class Letters:
        vocab_size = 40

        def encode(self, text: str, bos: bool = True) -> list[int]:
            return [0] * bos + [ord(char) - ord("a") for char in text]

        def pieces(self, ids: list[int]) -> list[str]:
            return [chr(ord("a") + i) for i in ids]

    model = placed()
    model.tokenizer = Letters()
    found = attribution(model, "bead", "h", against="c")
    assert found.title == "The logit of h less that of c, by layer"
    assert error(found.logit, attribution(model, [0, 1, 4, 0, 3], 7, against=2).logit) == 0
    assert attribution(model, "bead", by="position").column_labels == ["a", "b", "e", "a", "d"]
    with pytest.raises(ClearheadError, match="'he' must be one token, and is 2"):
        attribution(model, "bead", "he")
