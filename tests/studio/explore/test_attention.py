"""The attention, picture, expert and state views: each number is the library's, and the copied code prints it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import rollout
from clearhead.model.transformer import Transformer
from clearhead.studio import models as models_module
from clearhead.studio.context import Studio
from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.given import Given
from clearhead.studio.explore.parts import record_of
from clearhead.studio.explore.runs import Runs
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests import tiny
from tests.studio.explore.opened import answer, ask_in, looked, made, studio, with_folder
from tests.studio.snippets import assert_prints

CELLS = [
    ("clear-gpt", {"text": "The cat sat on the mat because it was tired"}, "layers.2.mixer", 1, 7, 3),
    ("clear-gpt", {"text": "a \u202e <b> \U0001f600\n'quoted' \"twice\""}, "layers.0.mixer", 0, 4, 4),
    ("clear-bert", {"text": "The [MASK] sat on the mat."}, "layers.5.mixer", 3, 2, 6),
    ("clear-translate", {"source": "fr: twenty-one"}, "layers.1.cross", 2, 1, 2),
    ("clear-translate", {"source": "fr: twenty-one"}, "encoder.layers.0.mixer", 0, 3, 0),
    ("clear-vit", {"picture": "ankle boot"}, "layers.3.mixer", 2, 0, 9),
    ("clear-speech", {"sound": "rising tone"}, "layers.0.cross", 1, 0, 40),
]


@pytest.mark.parametrize(("model", "given", "at", "head", "query", "key"), CELLS)
def test_a_cell(model: str, given: dict[str, str], at: str, head: int, query: int, key: int) -> None:
    run = made(model, **given)
    pattern = looked(run, f"{at}.pattern")[f"{at}.pattern"][0, head]
    found = answer("explore.cell", run=run.id, at=at, head=head, query=query, key=key)
    assert found.data["weight"] == float(pattern[query, key])
    assert torch.equal(found.arrays["row"], pattern[query]) and torch.equal(found.arrays["column"], pattern[:, key])
    assert found.data["row_top"][0]["weight"] == float(pattern[query].max())
    assert found.data["first"] == float(pattern[query, 0])
    assert found.data["row_sum"] == pytest.approx(1, abs=1e-6)
    shares = [float(x) for x in pattern[query].double() if x > 0]
    assert found.data["entropy_bits"] == pytest.approx(-sum(x * math.log2(x) for x in shares), abs=1e-9)
    assert_prints(found)


@pytest.mark.parametrize(("model", "given", "at", "head", "query", "key"), CELLS[:5])
def test_the_dot_product_behind_it(model: str, given: dict[str, str], at: str, head: int, query: int, key: int) -> None:
    run = made(model, **given)
    found = answer("explore.product", run=run.id, at=at, head=head, query=query, key=key)
    names = [f"{at}.{name}" for name in ("q", "k", "v", "z", "scores", "pattern")]
    q, k, v, z, scores, pattern = (looked(run, *names)[name][0] for name in names)
    arrays, data = found.arrays, found.data
    assert torch.equal(arrays["q"], q[head, query]) and torch.equal(arrays["k"], k[head, key])
    assert torch.equal(arrays["v"], v[head, key]) and torch.equal(arrays["z"], z[head, query])
    assert data["dot"] == pytest.approx(float(arrays["products"].sum()), abs=1e-4)
    assert data["scaled"] + data["added"] == pytest.approx(data["score"], abs=1e-6)
    assert data["score"] == float(scores[head, query, key])
    assert math.exp(data["score"] - data["log_sum"]) == pytest.approx(float(pattern[head, query, key]), abs=1e-6)
    assert_prints(found, least=2)


def test_a_masked_cell() -> None:
    run = made()
    found = answer("explore.product", run=run.id, at="layers.0.mixer", head=0, query=2, key=5)
    assert found.data["masked"] and found.data["weight"] == 0 and found.data["score"] is None
    assert_prints(found, least=2)


def test_the_key_that_has_most() -> None:
    run = made()
    found = answer("explore.cell", run=run.id, at="layers.1.mixer", head=3, query=9)
    row = looked(run, "layers.1.mixer.pattern")["layers.1.mixer.pattern"][0, 3, 9]
    assert found.data["key"] == int(row.argmax()) and found.data["weight"] == float(row.max())
    assert_prints(found)


def test_the_striking_head_is_that_of_the_report() -> None:
    text = "The captain of the old ship looked out to sea, and the captain of the old"
    found = answer("explore.striking", run=made(text=text).id).data
    from clearhead.lens import attention_report

    report = attention_report(clearhead.load("clear-gpt"), text)
    assert (found["place"], found["head"]) == (report.layer, report.head)


@pytest.mark.parametrize("where", [{"head": 4}, {"query": 99}, {"key": 99}, {"at": "layers.7.mixer"}, {"at": "embed"}])
def test_what_is_not_there(where: dict[str, object]) -> None:
    with pytest.raises(ClearheadError):
        answer("explore.cell", **{"run": made().id, "at": "layers.0.mixer", **where})


def hidden(own: Studio, run: str, at: str) -> np.ndarray:
    """(T, S): what the page hatches."""
    found = ask_in(own, "explore.visible", run=run, at=at)
    first, end = (found.arrays[name].numpy()[:, None] for name in ("first", "end"))  # type: ignore[union-attr]
    n_keys = own.runs.exact(run, f"{at}.pattern").shape[-1]
    keys = np.arange(n_keys)
    off = (keys < first) | (keys >= end)
    assert found.data["hides"] == off.any()
    return off


@pytest.mark.parametrize(
    ("model", "given"), [("clear-gpt", {"text": "one two three"}), ("clear-translate", {"source": "de: forty-seven"})]
)
def test_what_is_hatched_is_where_scores_are_hidden(model: str, given: dict[str, str]) -> None:
    run = made(model, **given)
    for kind in record_of(studio().models.get(model), model)["attention"]:
        for layer in kind["layers"]:
            scores = looked(run, f"{layer['at']}.scores")[f"{layer['at']}.scores"][0, 0].numpy()
            assert np.array_equal(scores == -math.inf, hidden(studio(), run.id, layer["at"]))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma3_text", "modernbert", "gpt_oss", "deepseek_v3"])
def test_windows_are_where_scores_are_hidden(family: str, tmp_path: Path) -> None:
    record = tiny.families()[family][0]
    record.make(**next(iter(record.configs.values()))).save_pretrained(tmp_path)
    own, name = with_folder(tmp_path)
    run = own.runs.make(name, Given(ids=tuple(range(3, 23))))
    windows = []
    for kind in record_of(own.models.get(name), name)["attention"]:
        for layer in kind["layers"]:
            scores = own.runs.exact(run.id, f"{layer['at']}.scores")[0, 0].numpy()
            assert np.array_equal(scores == -math.inf, hidden(own, run.id, layer["at"])), layer
            windows.append(layer["window"])
    assert family == "deepseek_v3" or any(window is not None and window < 20 for window in windows)


def test_a_picture_and_its_labels() -> None:
    run = made("clear-vit", picture="trousers")
    found = answer("explore.picture", run=run.id)
    model = clearhead.load("clear-vit")
    with torch.no_grad():
        shares = model(**run.inputs(model))[0].softmax(-1)
    assert found.data["labels"][0]["label"] == "Trouser"
    assert [one["share"] for one in found.data["labels"]] == pytest.approx(sorted(shares.tolist(), reverse=True))
    assert found.arrays["pixels"].shape == (28, 28, 1) and found.arrays["pixels"].dtype == torch.uint8
    assert_prints(found)


def test_a_picture_seen_with_a_head_off() -> None:
    run = made("clear-vit", picture="bag", ablate=(Ablation(layer=0, part="block"),))
    whole = answer("explore.picture", run=made("clear-vit", picture="bag").id)
    found = answer("explore.picture", run=run.id)
    assert found.data["labels"] != whole.data["labels"]
    assert_prints(found)


def test_rollout() -> None:
    run = made("clear-vit", picture="bag")
    found = answer("explore.rollout", run=run.id, query=0)
    model = clearhead.load("clear-vit")
    assert torch.equal(found.arrays["row"], rollout(model, run.inputs(model)).values[0].float())
    assert_prints(found)


def tiny_studio(family: str, folder: Path) -> tuple[Studio, str, Transformer]:
    record = tiny.families()[family][0]
    record.make(**next(iter(record.configs.values()))).save_pretrained(folder)
    own, name = with_folder(folder)
    return own, own.runs.make(name, Given(ids=(5, 9, 3, 7, 2, 8))).id, own.models.get(name)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3", "gpt_oss"])
def test_who_went_where(family: str, tmp_path: Path) -> None:
    own, run, model = tiny_studio(family, tmp_path)
    found = ask_in(own, "explore.experts", run=run, query=4)
    at, n = found.data["at"], found.data["n_experts"]
    seen = clearhead.look(model, torch.tensor([[5, 9, 3, 7, 2, 8]]), f"{at}.router_logits", f"{at}.chosen")
    assert torch.equal(found.arrays["chosen"].long(), seen[f"{at}.chosen"][0])
    assert found.arrays["shares"].shape == (6, n)
    if found.data["score"] != "sigmoid":
        assert torch.allclose(found.arrays["shares"], seen[f"{at}.router_logits"][0].softmax(-1), atol=1e-6)
    assert sum(found.data["used"]) == pytest.approx(found.data["n_chosen"])
    assert found.python.count("clearhead.load") == 1
    assert_prints(found, least=2)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mamba", "mamba2", "jamba"])
def test_state_over_time(family: str, tmp_path: Path) -> None:
    own, run, model = tiny_studio(family, tmp_path)
    found = ask_in(own, "explore.states", run=run, query=3)
    ids = torch.tensor([[5, 9, 3, 7, 2, 8]])
    seen = clearhead.look(model, ids, "*.state", "*.delta")
    states = [value[0] for address, value in seen.items() if address.endswith(".state")]
    norms = torch.stack([value.flatten(1).norm(dim=-1) for value in states])
    assert torch.allclose(found.arrays["norms"], norms, atol=1e-6)
    assert torch.allclose(found.arrays["map"], states[0].flatten(2).norm(dim=-1), atol=1e-6)
    assert found.data["length"] == pytest.approx(float(norms[0, 3]))
    delta = ask_in(own, "explore.states", run=run, query=3, what="delta")
    deltas = [value[0] for address, value in seen.items() if address.endswith(".delta")]
    assert torch.equal(delta.arrays["map"], deltas[0].float())
    assert delta.data["mean_delta"] == pytest.approx(float(deltas[0][3].double().mean()))
    assert_prints(found)


def test_models_are_told_by_their_parts() -> None:
    told = {name: record_of(studio().models.get(name), name) for name in ("clear-gpt", "clear-bert", "clear-vit")}
    assert told["clear-gpt"]["can"]["generate"] and not told["clear-bert"]["can"]["generate"]
    assert told["clear-vit"]["can"] == {
        **dict.fromkeys(told["clear-vit"]["can"], False),
        "attention": True,
        "ablate": True,
        "pictures": True,
    }
    names = [kind["name"] for kind in record_of(clearhead.load("clear-speech"), "clear-speech")["attention"]]
    assert sorted(names) == ["cross-attention", "decoder self-attention", "encoder self-attention"]


def test_a_question_whose_answer_is_there_takes_no_thread_of_its_own() -> None:
    run = made(text="what is there is told at once")
    args = {"run": run.id, "at": "layers.1.mixer", "query": 3}
    first = ask(studio(), "explore.cell", args)
    assert not isinstance(first, Answer)
    ((told,),) = (list(first),)
    again = ask(studio(), "explore.cell", args)
    assert isinstance(again, Answer) and told is not None and again.data == told.data


def test_a_model_is_told_of_without_loading_it_again() -> None:
    own = Studio(models=(models := Models()), runs=Runs(models))
    assert not isinstance(ask(own, "explore.model", {"model": "clear-2l"}), Answer) and not models.holds("clear-2l")
    told = ask_in(own, "explore.model", model="clear-2l")
    models._loaded.clear()
    again = ask(own, "explore.model", {"model": "clear-2l"})
    assert isinstance(again, Answer) and again.data == told.data and not models.holds("clear-2l")


def test_two_that_ask_for_a_model_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Studio(models=(models := Models()), runs=Runs(models))
    loads: list[str] = []
    load = models_module.load

    def counted(source: str) -> object:
        loads.append(source)
        time.sleep(0.1)
        return load(source)

    monkeypatch.setattr(models_module, "load", counted)
    names = ("explore.model", "explore.shapes", "explore.model")
    threads = [Thread(target=ask_in, args=(own, name), kwargs={"model": "clear-2l"}) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["clear-2l"]


@pytest.mark.parametrize("what", ["explore.states", "explore.rollout"])
def test_words_are_bounded(what: str) -> None:
    with pytest.raises(UsageError, match="at most 20"):
        ask(studio(), what, {"run": "0" * 64, {"explore.states": "what", "explore.rollout": "part"}[what]: "x" * 21})
