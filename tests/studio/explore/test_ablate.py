"""Parts switched off, and each in its turn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import UsageError
from clearhead.lens import at, forbid, mean, zero
from tests.studio.explore.asking import CAT, all_of, asked, run_of, studio
from tests.studio.snippets import assert_prints

OFF: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"layer": 1, "heads": [0, 2]}, [{"layers.1.mixer.z": at(zero, heads=[0, 2])}]),
    ({"layer": 2, "part": "ffn", "mode": "mean"}, [{"layers.2.ffn.out": mean(over="positions")}]),
    ({"layer": 0, "part": "mixer"}, [{"layers.0.mixer.out": zero}]),
    ({"layer": 3, "part": "block"}, [{"layers.3.mixer.out": zero}, {"layers.3.ffn.out": zero}]),
    (
        {"layer": 1, "heads": [3], "queries": [6], "keys": [2]},
        [{"layers.1.mixer.scores": at(forbid, heads=[3], positions=[6], keys=[2])}],
    ),
]


@pytest.mark.parametrize(("off", "edits"), OFF, ids=["heads", "MLP, mean", "attention", "layer", "link"])
def test_both_sides_are_the_librarys(off: dict[str, Any], edits: list[dict[str, Any]]) -> None:
    model = studio().models.get("clear-gpt")
    found = asked("explore.ablate", run=run_of(), off=[off], position=7)
    before, after = (clearhead.edit(model, CAT, some)[0] for some in ({}, edits))
    ids = torch.tensor(model.tokenizer.encode(CAT))
    for row in found.data["rows"]:
        token = row["id"]
        assert row["logit"] == pytest.approx(float(before[7, token]), abs=1e-5)
        assert row["logit_after"] == pytest.approx(float(after[7, token]), abs=1e-5)
        assert row["after"] == pytest.approx(float(after[7].softmax(-1)[token]), abs=1e-6)
        assert row["change"] == pytest.approx(row["logit_after"] - row["logit"], abs=1e-9)
    loss = torch.nn.functional.cross_entropy(after[:-1], ids[1:])
    assert found.data["loss_after"] == pytest.approx(float(loss), abs=1e-5)
    assert not torch.equal(before, after)
    assert_prints(found, least=8)


def test_nothing_off_changes_nothing() -> None:
    found = asked("explore.ablate", run=run_of())
    assert all(row["change"] == 0 and row["before"] == row["after"] for row in found.data["rows"])
    assert float(found.arrays["loss_change"].abs().max()) == 0
    assert_prints(found)


@pytest.mark.parametrize("metric", ["logit", "difference", "loss"])
@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_every_cell_of_the_sweep_is_one_ablation(metric: str, mode: str) -> None:
    model = studio().models.get("clear-gpt")
    answers = all_of("explore.ablate-grid", run=run_of(), metric=metric, mode=mode, token=" the", against=" a")
    assert [answer.data["done"] for answer in answers] == [1, 2, 3, 4]
    assert int(answers[0].arrays["there"].sum()) == 5
    first, second = (model.tokenizer.encode(text, bos=False)[0] for text in (" the", " a"))
    ids = torch.tensor(model.tokenizer.encode(CAT))

    def measure(edits: Any) -> float:
        logits = clearhead.edit(model, CAT, edits)[0]
        if metric == "loss":
            return float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:]))
        less = float(logits[-1, second]) if metric == "difference" else 0.0
        return float(logits[-1, first]) - less

    values = answers[-1].arrays["values"]
    what = zero if mode == "zero" else mean(over="positions")
    for layer, head in ((0, 0), (2, 3)):
        expected = measure({f"layers.{layer}.mixer.z": at(what, heads=[head])}) - measure({})
        assert float(values[layer, head]) == pytest.approx(expected, abs=2e-5)
    assert float(values[1, 4]) == pytest.approx(measure({"layers.1.ffn.out": what}) - measure({}), abs=2e-5)
    assert answers[-1].data["columns"][-1] == "MLP"
    assert_prints(answers[-1])


def test_the_largest_change_is_named() -> None:
    last = asked("explore.ablate-grid", run=run_of())
    values, largest = last.arrays["values"], last.data["largest"]
    assert abs(largest["change"]) == pytest.approx(float(values.abs().max()), abs=1e-6)
    assert float(values[largest["layer"], largest["column"]]) == pytest.approx(largest["change"], abs=1e-6)


def test_two_stacks() -> None:
    run = run_of("clear-translate", source="two hundred and forty one")
    own = asked("explore.ablate-grid", run=run)
    assert own.data["columns"][4] == "cross-attention head 0"
    encoder = asked("explore.ablate-grid", run=run, stack="encoder")
    assert encoder.data["columns"] == ["head 0", "head 1", "head 2", "head 3", "MLP"]
    off = [{"layer": 1, "part": "cross", "heads": [0]}, {"layer": 0, "stack": "encoder", "heads": [1]}]
    for found in (own, encoder, asked("explore.ablate", run=run, off=off)):
        assert_prints(found)


LINKS: list[tuple[dict[str, Any], str]] = [
    ({"layer": 1, "part": "cross", "heads": [0], "queries": [2], "keys": [1]}, "layers.1.cross.scores"),
    ({"layer": 0, "stack": "encoder", "heads": [0], "queries": [2], "keys": [1]}, "encoder.layers.0.mixer.scores"),
]


@pytest.mark.parametrize(("off", "address"), LINKS, ids=["to the source", "within the source"])
def test_a_link_of_another_attention_is_cut(off: dict[str, Any], address: str) -> None:
    model = studio().models.get("clear-translate")
    run = run_of("clear-translate", source="two hundred and forty one")
    found = asked("explore.ablate", run=run, off=[off], position=2)
    inputs = studio().runs.get(run).inputs(model)
    edits = {address: at(forbid, heads=[0], positions=[2], keys=[1])}
    before, after = (clearhead.edit(model, inputs, some)[0, 2] for some in ({}, edits))
    assert not torch.equal(before, after)
    for row in found.data["rows"]:
        assert row["logit_after"] == pytest.approx(float(after[row["id"]]), abs=1e-5)
    assert found.data["off"][0]["keys"] == (1,)
    assert_prints(found)


def test_labels_of_a_picture() -> None:
    model = studio().models.get("clear-vit")
    run = run_of("clear-vit", picture="bag")
    off = [{"layer": 1, "heads": [0]}]
    found = asked("explore.ablate", run=run, off=off, n=3)
    inputs = studio().runs.get(run).inputs(model)
    before, after = (
        clearhead.edit(model, inputs, some)[0] for some in ({}, [{"layers.1.mixer.z": at(zero, heads=[0])}])
    )
    assert found.data["first"]["id"] == int(before.argmax())
    for row in found.data["rows"]:
        assert row["before"] == pytest.approx(float(before.softmax(-1)[row["id"]]), abs=1e-6)
        assert row["logit_after"] == pytest.approx(float(after[row["id"]]), abs=1e-5)
    assert not found.data["first"]["text"].startswith("label")
    assert_prints(found)
    swept = asked("explore.ablate-grid", run=run, metric="difference")
    assert float(swept.arrays["values"].abs().max()) > 0
    assert_prints(swept)
    with pytest.raises(UsageError, match="no loss"):
        asked("explore.ablate-grid", run=run, metric="loss")


def test_what_a_model_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no layer 9"):
        asked("explore.ablate", run=run_of(), off=[{"layer": 9}])
    with pytest.raises(UsageError, match="no encoder"):
        asked("explore.ablate-grid", run=run_of(), stack="encoder")
    with pytest.raises(UsageError, match="has no loss"):
        asked("explore.ablate-grid", run=run_of("clear-bert", text="A cat."), metric="loss")
    with pytest.raises(UsageError, match="same token"):
        asked("explore.ablate-grid", run=run_of(), metric="difference", token=" a", against=" a")


def test_the_switches_are_the_parts_there_are() -> None:
    (stack,) = asked("explore.switches", model="clear-gpt").data["stacks"]
    assert [layer["heads"] for layer in stack["layers"]] == [4, 4, 4, 4]
    assert all(layer["ffn"] and layer["crossed"] == 0 for layer in stack["layers"])
    assert stack["passes"] == 4 * (4 + 1)
    decoder, encoder = asked("explore.switches", model="clear-translate").data["stacks"]
    assert (decoder["passes"], encoder["passes"]) == (2 * (4 + 4 + 1), 2 * (4 + 1))
    assert (decoder["stack"], encoder["stack"]) == ("", "encoder")
    assert [layer["crossed"] for layer in decoder["layers"]] == [4, 4]
    (plain,) = asked("explore.switches", model="clear-2l").data["stacks"]
    assert not any(layer["ffn"] for layer in plain["layers"])
    assert plain["passes"] == sum(layer["heads"] for layer in plain["layers"])
