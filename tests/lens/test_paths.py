"""Path patching against hooks that change one path by hand, in float64."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.metrics import logit_difference
from clearhead.lens.paths import path_patching
from clearhead.taps import catalogue
from tests import tiny
from tests.families.pairs import make_pair
from tests.lens.placed import NORMS, H, K, placed
from tests.lens.test_patching import ANSWER, CLEAN, CORRUPTED, OTHER, by_hand, hooked
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]


def metric_of(model):
    return logit_difference(model, ANSWER, OTHER)


def sent(model, layer: int, head: int):
    """What changes in the output of the layer's attention when one head is corrupted, before any norm."""
    z = f"layers.{layer}.mixer.z"
    ours, theirs = (look(model, tokens, z)[z][:, head] for tokens in (CLEAN, CORRUPTED))
    return (theirs - ours) @ model.layers[layer].mixer.o_proj.weight[:, K * head : K * (head + 1)].detach().T


@pytest.mark.parametrize("placement", ["pre", "parallel"])
def test_the_direct_effect_is_what_the_final_norm_makes_of_the_stream_with_one_change(placement):
    model = placed(placement)
    found = path_patching(model, CLEAN, CORRUPTED, metric_of(model))
    assert found.title == "Paths to the logits" and found.receivers == ()
    clean, corrupted = by_hand(model, CLEAN), by_hand(model, CORRUPTED)
    stream = look(model, CLEAN, "layers.1.resid_post")["layers.1.resid_post"]
    rows = torch.arange(2)
    for layer in range(2):
        for head in range(H):
            with torch.no_grad():
                moved = stream + sent(model, layer, head) * model.layers[layer].config.mixer.scale
                logits = model.head(model.norm(moved), model.embed.tokens.weight)[:, -1]
            value = float((logits[rows, ANSWER] - logits[rows, OTHER]).mean())
            assert float(found.values[layer, head]) == pytest.approx((clean - value) / (clean - corrupted), abs=1e-10)


def by_hooks(model, layer: int, head: int, name: str, receiver: int) -> float:
    """What head `receiver` of layer 1 reads through q, k or v is changed by hand, where each head has its own keys."""
    block = model.layers[1]
    stream = look(model, CLEAN, "layers.1.resid_pre")["layers.1.resid_pre"]
    with torch.no_grad():
        moved = stream + sent(model, layer, head) * block.config.mixer.scale
        projection = getattr(block.mixer, f"{name}_proj")
        new = projection(block.mixer_norm.pre(moved))

        def hook(_, __, out):
            out = out.clone()
            out[..., K * receiver : K * (receiver + 1)] = new[..., K * receiver : K * (receiver + 1)]
            return out

    return by_hand(model, CLEAN, projection, hook)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_what_a_head_reads_of_another(name):
    model = placed("pre", n_kv_heads=4)
    clean, corrupted = by_hand(model, CLEAN), by_hand(model, CORRUPTED)
    found = path_patching(model, CLEAN, CORRUPTED, metric_of(model), (1, 2), into=name)
    assert found.values.shape == (1, H) and found.receivers == ((1, 2),)
    assert found.title == f"Paths to 1.2 ({name})"
    for head in range(H):
        expected = (clean - by_hooks(model, 0, head, name, 2)) / (clean - corrupted)
        assert float(found.values[0, head]) == pytest.approx(expected, abs=1e-10)
    assert float(found.values.abs().max()) > 1e-3


def test_of_grouped_heads_the_receiver_alone_reads_what_changed():
    """A group's receivers together are the group's keys; each alone is less."""
    model = placed("pre", n_kv_heads=2)
    clean, corrupted = by_hand(model, CLEAN), by_hand(model, CORRUPTED)
    both = path_patching(model, CLEAN, CORRUPTED, metric_of(model), [(1, 2), (1, 3)], into="v", senders=[(0, 1)])
    # Heads 2 and 3 share the second of two key-value heads.
    expected = (clean - by_hooks(model, 0, 1, "v", 1)) / (clean - corrupted)
    assert float(both.values[0, 1]) == pytest.approx(expected, abs=1e-10)
    assert both.values[0, [0, 2, 3]].isnan().all()
    one = path_patching(model, CLEAN, CORRUPTED, metric_of(model), (1, 2), into="v", senders=[(0, 1)])
    assert abs(float(one.values[0, 1]) - expected) > 1e-6


@pytest.mark.parametrize("placement", NORMS)
def test_through_feed_forwards_nothing_is_held_on_the_way_of_two_layers(placement):
    """Between layer 0's heads and layer 1's there is a feed-forward alone, so all heads of layer 1 read the run in
    which the sender is corrupted and nothing else is touched.
    """
    model = placed(placement)
    clean, corrupted = by_hand(model, CLEAN), by_hand(model, CORRUPTED)
    everyone = [(1, h) for h in range(H)]
    found = path_patching(model, CLEAN, CORRUPTED, metric_of(model), everyone, senders=[(0, 1)], through_ffn=True)
    theirs = look(model, CORRUPTED, "layers.0.mixer.z")["layers.0.mixer.z"]

    def corrupt(_, args):
        z = args[0].clone()
        z[..., K : 2 * K] = theirs[:, 1].reshape(z.shape[0], z.shape[1], K)
        return (z,)

    # In the corrupted run's layer 1, what the three projections give; then those alone, in the clean run.
    attention, kept = model.layers[1].mixer, {}
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    with ExitStack() as stack, torch.no_grad():
        for p in projections:
            stack.enter_context(hooked(p, lambda p, _, out: kept.__setitem__(p, out)))
        stack.enter_context(hooked(model.layers[0].mixer.o_proj, corrupt, before=True))
        model(CLEAN)
    with ExitStack() as stack:
        for p in projections:
            stack.enter_context(hooked(p, lambda p, _, __: kept[p]))
        value = by_hand(model, CLEAN)
    assert float(found.values[0, 1]) == pytest.approx((clean - value) / (clean - corrupted), abs=1e-10)
    held = path_patching(model, CLEAN, CORRUPTED, metric_of(model), everyone, senders=[(0, 1)])
    # Beside the heads, a parallel feed-forward has nothing of them to answer to.
    answers = abs(float(held.values[0, 1] - found.values[0, 1])) > 1e-9
    assert answers == (placement != "parallel")


def test_nothing_is_left_behind_and_the_json_is_plain():
    model = placed("post")
    names = [name for name in catalogue(model) if not name.endswith(("scores", "pattern"))]
    before = look(model, CLEAN, *names)
    found = path_patching(model, CLEAN, CORRUPTED, metric_of(model), (1, 0), into="k")
    after = look(model, CLEAN, *names)
    assert all(error(after[name], before[name]) == 0 for name in names)
    said = json.loads(json.dumps(found.to_json()))
    assert said["receivers"] == [[1, 0]] and said["into"] == "k" and said["rows"] == ["layer 0"]


def test_what_is_refused(tmp_path):
    model = placed("pre")
    metric = metric_of(model)
    for how, message in (
        ({"receivers": (2, 0)}, "no attention in layer 2; layers with heads are 0, 1"),
        ({"receivers": (1, 4)}, "no head 4 in layer 1; its heads are 0 to 3"),
        ({"receivers": (1, 0), "senders": [(0, 9)]}, "no head 9 in layer 0"),
        ({"receivers": (0, 1)}, "no head comes before layer 0"),
        ({"into": "z"}, "into is 'z'"),
    ):
        with pytest.raises(ClearheadError, match=message):
            path_patching(model, CLEAN, CORRUPTED, metric, **how)
    with pytest.raises(ClearheadError, match="7 long and the corrupted 5"):
        path_patching(model, CLEAN, CORRUPTED[:, :5], metric)
    pair = make_pair("mamba", next(iter(tiny.families()["mamba"][0].configs)), tmp_path)
    with pytest.raises(ClearheadError, match="no attention"):
        path_patching(pair.ours, CLEAN, CORRUPTED, metric)
