"""The attention, picture, expert and state views: each number is the library's, and the copied code prints it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens import rollout
from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.given import Given
from clearhead.studio.explore.parts import record_of
from clearhead.studio.operations import Answer, ask
from tests import tiny
from tests.studio.explore.opened import answer, looked, made, studio, with_folder
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


def test_every_head_at_a_cell() -> None:
    run = made()
    found = answer("explore.heads_at", run=run.id, at="layers.1.mixer", query=9, key=3)
    pattern = looked(run, "layers.1.mixer.pattern")["layers.1.mixer.pattern"][0]
    assert found.data["weights"] == pattern[:, 9, 3].tolist()
    assert_prints(found, least=4)


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


def test_masks_are_where_scores_are_hidden() -> None:
    """What the page hatches, by kind and window, is what the library hides."""
    model = clearhead.load("clear-gpt")
    (kind,) = record_of(model, "clear-gpt")["attention"]
    run = made()
    for layer in kind["layers"]:
        scores = looked(run, f"{layer['at']}.scores")[f"{layer['at']}.scores"][0, 0]
        assert np.array_equal(scores == -math.inf, hidden(layer, *scores.shape))
    for kind in record_of(clearhead.load("clear-translate"), "clear-translate")["attention"]:
        masks = {(layer["mask"], layer["window"]) for layer in kind["layers"]}
        assert masks == {("causal" if kind["name"].startswith("decoder") else "full", None)}


def hidden(layer: dict[str, object], n_queries: int, n_keys: int) -> np.ndarray:
    """The page's rule (figures/explore/attention.ts)."""
    i, j = np.arange(n_queries)[:, None], np.arange(n_keys)
    later = j > i if layer["mask"] == "causal" else np.zeros((n_queries, n_keys), bool)
    window = layer["window"]
    if window is None:
        return later
    return later | (i - j >= window) if layer["mask"] == "causal" else abs(i - j) > window


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma3_text", "modernbert", "gpt_oss"])
def test_windows_are_where_scores_are_hidden(family: str, tmp_path: Path) -> None:
    record = tiny.families()[family][0]
    record.make(**next(iter(record.configs.values()))).save_pretrained(tmp_path)
    own, name = with_folder(tmp_path)
    run = own.runs.make(name, Given(ids=tuple(range(3, 23))))
    windows = []
    for kind in record_of(own.models.get(name), name)["attention"]:
        for layer in kind["layers"]:
            scores = own.runs.exact(run.id, f"{layer['at']}.scores")[0, 0]
            assert np.array_equal(scores == -math.inf, hidden(layer, *scores.shape)), layer
            windows.append(layer["window"])
    assert any(window is not None and window < 20 for window in windows)


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


def tiny_studio(family: str, folder: Path) -> tuple[object, str, object]:
    record = tiny.families()[family][0]
    record.make(**next(iter(record.configs.values()))).save_pretrained(folder)
    own, name = with_folder(folder)
    return own, own.runs.make(name, Given(ids=(5, 9, 3, 7, 2, 8))).id, own.models.get(name)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3", "gpt_oss"])
def test_who_went_where(family: str, tmp_path: Path) -> None:
    own, run, model = tiny_studio(family, tmp_path)
    found = ask(own, "explore.experts", {"run": run, "query": 4})  # type: ignore[arg-type]
    assert isinstance(found, Answer)
    at, n = found.data["at"], found.data["n_experts"]
    seen = clearhead.look(model, torch.tensor([[5, 9, 3, 7, 2, 8]]), f"{at}.router_logits", f"{at}.chosen")  # type: ignore[arg-type]
    assert torch.equal(found.arrays["chosen"].long(), seen[f"{at}.chosen"][0])
    assert found.arrays["shares"].shape == (6, n)
    if found.data["score"] != "sigmoid":
        assert torch.allclose(found.arrays["shares"], seen[f"{at}.router_logits"][0].softmax(-1), atol=1e-6)
    assert sum(found.data["used"]) == pytest.approx(found.data["n_chosen"])
    assert found.python.count("clearhead.load") == 1
    code = found.python.replace(repr(own.models.named[0]), repr(str(tmp_path)))  # type: ignore[attr-defined]
    assert_prints(Answer(python=code, printed=found.printed), least=2)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mamba", "mamba2", "jamba"])
def test_state_over_time(family: str, tmp_path: Path) -> None:
    own, run, model = tiny_studio(family, tmp_path)
    found = ask(own, "explore.states", {"run": run, "query": 3})  # type: ignore[arg-type]
    assert isinstance(found, Answer)
    ids = torch.tensor([[5, 9, 3, 7, 2, 8]])
    seen = clearhead.look(model, ids, "*.state", "*.delta")  # type: ignore[arg-type]
    states = [value[0] for address, value in seen.items() if address.endswith(".state")]
    norms = torch.stack([value.flatten(1).norm(dim=-1) for value in states])
    assert torch.allclose(found.arrays["norms"], norms, atol=1e-6)
    assert torch.allclose(found.arrays["map"], states[0].flatten(2).norm(dim=-1), atol=1e-6)
    assert found.data["length"] == pytest.approx(float(norms[0, 3]))
    delta = ask(own, "explore.states", {"run": run, "query": 3, "what": "delta"})  # type: ignore[arg-type]
    assert isinstance(delta, Answer)
    deltas = [value[0] for address, value in seen.items() if address.endswith(".delta")]
    assert torch.equal(delta.arrays["map"], deltas[0].float())
    assert delta.data["mean_delta"] == pytest.approx(float(deltas[0][3].double().mean()))
    code = found.python.replace(repr(own.models.named[0]), repr(str(tmp_path)))  # type: ignore[attr-defined]
    code = code.replace("inputs = {", "inputs = {")
    assert_prints(Answer(python=code, printed=found.printed))


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
