"""What a number was made from: the values that the page writes into a formula give the number again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import UsageError
from clearhead.studio.explore import compare, generate, heads, lens, made, patch, predict  # noqa: F401 - register
from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.given import Given
from tests import tiny
from tests.studio.explore.asking import CAT, DOG, all_of, asked, run_of, studio
from tests.studio.explore.opened import ask_in, with_folder

CLOSE: dict[str, Any] = {"rel": 1e-4, "abs": 1e-5}
OFF = Ablation(layer=3, part="ffn")
LINK = {"query": 9, "key": 3, "at": "layers.2.mixer", "head": 1}


def dot(product: dict[str, Any]) -> float:
    """A sum of products that is told whole: as long as it is short, or by its sum."""
    pairs, n = product["pairs"], product.get("n", product.get("of"))
    return sum(a * b for a, b in pairs) if len(pairs) == n else product["sum"]


@pytest.mark.parametrize("model", ["clear-gpt", "clear-bert", "clear-2l"])
def test_logits_and_probabilities(model: str) -> None:
    how = {"temperature": 0.7, "top_k": 12, "top_p": 0.9}
    data = asked("explore.predict", run=run_of(model, text=CAT), position=3, **how).data
    for row in [*data["rows"], data["actual"]]:
        assert math.exp(row["logit"] - data["log_sum"]) == pytest.approx(row["p"], **CLOSE)
        if row["kept"]:
            assert row["adjusted"] == pytest.approx(row["logit"] / 0.7, **CLOSE)
            assert math.exp(row["adjusted"] - data["log_sum_after"]) == pytest.approx(row["after"], **CLOSE)
        assert row["made"]["logit"] == pytest.approx(row["logit"], **CLOSE)
        assert row["made"]["sum"] * row["made"]["scale"] + (row["made"]["bias"] or 0) == pytest.approx(
            row["made"]["logit"], **CLOSE
        )
    assert data["actual"]["rank"] == 1 + data["actual"]["above"]


def test_the_products_of_a_logit_are_those_of_the_stream_and_the_matrix() -> None:
    run, model = run_of(), studio().models.get("clear-gpt")
    row = asked("explore.predict", run=run, n=1).data["rows"][0]
    final_D = studio().runs.exact(run, "final")[0, -1]
    weights_D = model.embed.tokens.weight[row["id"]].detach()
    assert row["made"]["of"] == len(final_D)
    assert row["made"]["pairs"] == [[float(x), float(w)] for x, w in zip(final_D[:3], weights_D[:3], strict=True)]
    assert row["made"]["sum"] == pytest.approx(float(final_D @ weights_D), **CLOSE)


def test_costs_along_a_text() -> None:
    found = asked("explore.losses", run=run_of())
    n = len(found.arrays["loss"])
    assert (found.arrays["log_sums"][:n] - found.arrays["logits"]).tolist() == pytest.approx(
        found.arrays["loss"].tolist(), **CLOSE
    )
    assert found.data["costs"]["sum"] / found.data["costs"]["n"] == pytest.approx(found.data["mean"], **CLOSE)
    assert found.data["costs"]["first"] == pytest.approx(found.arrays["loss"][:3].tolist())
    first = asked("explore.predict", run=run_of(), position=0, n=1).data["rows"][0]["p"]
    assert float(found.arrays["most"][0]) == pytest.approx(first, **CLOSE)


@pytest.mark.parametrize("by", ["layer", "head", "neuron", "position"])
def test_parts_of_a_logit(by: str) -> None:
    """Of a head or a neuron that is one product, or few, the part is their sum; the first are told of longer ones."""
    found = asked("explore.attribution", run=run_of(), by=by, table=by != "neuron")
    parts = [part for part in found.data["parts"] if part["made"] is not None]
    assert parts or by == "position"
    for part in parts:
        assert part["made"]["n"] >= len(part["made"]["pairs"]) > 0
        if part["made"]["n"] <= 3:
            assert dot(part["made"]) == pytest.approx(part["value"], **CLOSE)
    if by == "neuron":
        assert all(part["made"]["n"] == 1 for part in parts if "neuron" in part["name"])
    if by == "position":
        # Each cell is a sum over heads: clear-gpt has four, of which three products are told.
        assert {made["n"] for made in found.data["products"] if made is not None} == {4, 256}
    if by == "head":
        assert {made["n"] for made in found.data["products"] if made is not None} == {64}


def test_one_part_in_full() -> None:
    model, run = studio().models.get("clear-gpt"), run_of()
    found = asked("explore.attribution", run=run, by="layer").data
    last = next(part for part in found["parts"] if part["name"] == "layer 3, MLP")
    out_D = studio().runs.exact(run, "layers.3.ffn.out")[0, -1]
    stream_D = studio().runs.exact(run, "layers.3.resid_post")[0, -1].double()
    # An RMSNorm with its scale held: u'_d = W_td g_d / rms(x).
    scale = 1 / (stream_D.square().mean() + model.norm.config.eps).sqrt()
    pulled_D = model.embed.tokens.weight[found["token"]["id"]].detach().double() * scale
    gain_D = getattr(model.norm, "weight", None)
    pulled_D = pulled_D if gain_D is None else pulled_D * gain_D.detach().double()
    assert [pair[0] for pair in last["made"]["pairs"]] == pytest.approx(out_D[:3].tolist(), **CLOSE)
    assert [pair[1] for pair in last["made"]["pairs"]] == pytest.approx(pulled_D[:3].tolist(), **CLOSE)
    assert float(out_D.double() @ pulled_D) == pytest.approx(last["value"], **CLOSE)


def test_the_lens() -> None:
    found = asked("explore.lens", run=run_of(), token=" the", n=64)
    again = (found.arrays["logits"] - found.arrays["log_sums"][..., None]).exp()
    assert torch.allclose(again, found.arrays["p"], atol=1e-5)
    again = (found.arrays["followed_logit"] - found.arrays["log_sums"]).exp()
    assert torch.allclose(again, found.arrays["followed"], atol=1e-5)
    assert torch.equal(found.arrays["rank"], found.arrays["above"] + 1)


def test_weights_of_attention() -> None:
    run = run_of()
    found = asked("explore.cell", run=run, **LINK)
    row, column = found.arrays["row"], found.arrays["column"]
    log_sums = found.arrays["log_sums"]
    assert torch.allclose((found.arrays["scores"] - log_sums[LINK["query"]]).exp(), row, atol=1e-6)
    assert torch.allclose((found.arrays["column_scores"] - log_sums).exp(), column, atol=1e-6)
    firsts = found.data["firsts"]
    assert firsts["sum"] / firsts["n"] == pytest.approx(found.data["first_mean"], **CLOSE)


def test_weights_of_a_long_text_come_without_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(text="A text that nobody has read before.")
    monkeypatch.setattr("clearhead.studio.explore.attention.SHORT", 0)
    assert "scores" not in asked("explore.cell", run=run, at="layers.0.mixer", head=0, query=2).arrays
    assert not studio().runs.has(run, "layers.0.mixer.scores")


@pytest.mark.parametrize(
    ("address", "index", "kind"),
    [
        ("layers.1.resid_mid", (3, 7), "sum"),
        ("layers.1.resid_post", (3, 7), "sum"),
        ("layers.1.mixer.pattern", (2, 5, 1), "softmax"),
        ("layers.1.mixer.scores", (2, 5, 1), "product"),
        ("layers.1.mixer.z", (2, 5, 9), "product"),
        ("layers.1.mixer.scores", (2, 1, 5), ""),
        ("layers.1.mixer.q", (2, 5, 1), ""),
        ("final", (3, 7), ""),
    ],
)
def test_a_cell_of_a_tap(address: str, index: tuple[int, ...], kind: str) -> None:
    run = run_of()
    data = asked("explore.made", run=run, address=address, index=index).data
    value = float(studio().runs.exact(run, address)[(0, *index)])
    assert data["kind"] == kind
    if kind == "sum":
        assert sum(term["value"] for term in data["terms"]) == pytest.approx(value, **CLOSE)
    elif kind == "softmax":
        assert math.exp(data["score"] - data["log_sum"]) == pytest.approx(value, **CLOSE)
    elif kind == "product":
        assert dot(data) * data["scale"] == pytest.approx(value, **CLOSE)


def test_a_stream_that_is_normed_after_the_sum_is_no_plain_sum() -> None:
    """clear-translate, or another: what is told is always the number that stands there."""
    for name, text in (("clear-bert", {"text": CAT}), ("clear-translate", {"source": "two hundred and forty one"})):
        run = studio().runs.make(name, Given(**text)).id
        for address in ("layers.0.resid_mid", "layers.1.resid_post"):
            data = asked("explore.made", run=run, address=address, index=(0, 3)).data
            value = float(studio().runs.exact(run, address)[0, 0, 3])
            if data["kind"] == "sum":
                assert sum(term["value"] for term in data["terms"]) == pytest.approx(value, rel=1e-3, abs=1e-3)


def test_a_cell_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no cell"):
        asked("explore.made", run=run_of(), address="final", index=(500, 0))


def test_an_ablation() -> None:
    data = asked("explore.ablate", run=run_of(), off=(OFF,)).data
    for row in data["rows"]:
        assert math.exp(row["logit"] - data["log_sums"][0]) == pytest.approx(row["before"], **CLOSE)
        assert math.exp(row["logit_after"] - data["log_sums"][1]) == pytest.approx(row["after"], **CLOSE)
    assert math.exp(data["first_then_logit"] - data["log_sums"][1]) == pytest.approx(data["first_then"], **CLOSE)
    assert [one["sum"] / one["n"] for one in data["costs"]] == pytest.approx([data["loss"], data["loss_after"]])


@pytest.mark.parametrize("metric", ["logit", "difference", "loss"])
def test_a_sweep_of_ablations(metric: str) -> None:
    found = asked("explore.ablate-grid", run=run_of(), metric=metric)
    made_of = found.data["base_made"]
    if metric == "loss":
        assert made_of["costs"]["sum"] / made_of["costs"]["n"] == pytest.approx(found.data["base"], **CLOSE)
    else:
        first, *second = made_of["logits"]
        assert first - sum(second) == pytest.approx(found.data["base"], **CLOSE)
        assert len(second) == (metric == "difference")
    there = found.arrays["there"].bool()
    changes = found.arrays["measured"] - found.data["base"]
    assert torch.allclose(changes[there], found.arrays["values"][there], atol=1e-5)
    largest = found.data["largest"]
    assert largest["measured"] - found.data["base"] == pytest.approx(largest["change"], **CLOSE)


def test_patches() -> None:
    one, two = run_of(), run_of(text=DOG)
    found = all_of("explore.patch-sweep", run=one, other_run=two)[-1]
    clean, corrupted = (first - second for first, second in found.data["logits"])
    assert (clean, corrupted) == pytest.approx((found.data["clean"], found.data["corrupted"]), **CLOSE)
    shares = (found.arrays["measured"] - corrupted) / (clean - corrupted)
    assert torch.allclose(shares, found.arrays["values"], atol=1e-3)
    single = asked("explore.patch", run=one, other_run=two).data
    assert [a - b for a, b in single["logits"]] == pytest.approx(
        [single[name] for name in ("clean", "corrupted", "patched")], **CLOSE
    )
    for row in single["rows"]:
        again = [math.exp(z - s) for z, s in zip(row["logits"], single["log_sums"], strict=True)]
        assert again == pytest.approx([row[name] for name in ("clean", "corrupted", "patched")], **CLOSE)


def test_what_is_written() -> None:
    how = {"temperature": 0.8, "top_k": 30, "top_p": 0.95, "seed": 1}
    for answer in all_of("explore.generate", run=run_of(), n=3, sampling=how):
        step = answer.data
        assert math.exp(step["logit"] - step["log_sum"]) == pytest.approx(step["p"], **CLOSE)
        for other in step["others"]:
            if other["kept"]:
                assert math.exp(other["logit"] / 0.8 - step["log_sum_after"]) == pytest.approx(other["after"], **CLOSE)
        held = sum(one["n"] * math.prod(one["shape"]) * one["bytes"] for one in step["cache"])
        assert held == step["cache_bytes"] > 0


def test_two_runs() -> None:
    one, two = run_of(), run_of(off=(OFF,))
    data = asked("explore.compare", run=one, other_run=two).data
    assert [costs["sum"] / costs["n"] for costs in data["costs"]] == pytest.approx(data["means"], **CLOSE)
    for piece in data["pieces"][1:]:
        assert [-math.log(p) for p in piece["p"]] == pytest.approx(piece["loss"], **CLOSE)
    behind = asked("explore.behind", run=one, other_run=two).data
    for row in behind["shared"]:
        again = [math.exp(z - s) for z, s in zip(row["logits"], behind["log_sums"], strict=True)]
        assert again == pytest.approx(row["p"], **CLOSE)


def test_all_parameters_are_told_once() -> None:
    for name in ("clear-gpt", "clear-bert", "clear-translate", "clear-vit", "clear-speech", "clear-2l"):
        data = asked("explore.shapes", model=name).data
        assert sum(one["parameters"] for one in data["addends"]) == data["parameters"], name
        assert all(one["parameters"] > 0 for one in data["addends"]), name


def test_numbers_of_a_tap() -> None:
    run = run_of()
    for address, head in (("layers.1.mixer.scores", 2), ("final", 0)):
        data = asked("explore.tap", run=run, address=address, head=head).data
        value = studio().runs.exact(run, address)[0]
        assert data["sum"] / data["finite"] == pytest.approx(data["mean"], **CLOSE)
        assert math.sqrt(data["squares"] / data["finite"]) == pytest.approx(data["std"], **CLOSE)
        assert float(value[tuple(data["least_at"])]) == pytest.approx(data["least"])
        assert float(value[tuple(data["most_at"])]) == pytest.approx(data["most"])


def test_shares_of_a_picture() -> None:
    run = studio().runs.make("clear-vit", Given(picture="bag")).id
    data = asked("explore.picture", run=run).data
    for label in data["labels"]:
        assert math.exp(label["logit"] - data["log_sum"]) == pytest.approx(label["share"], **CLOSE)
    rolled = asked("explore.rollout", run=run, query=4)
    assert torch.equal(rolled.arrays["layers"][-1], rolled.arrays["row"])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3", "gpt_oss"])
def test_experts(family: str, tmp_path: Path) -> None:
    own, run = _tiny(family, tmp_path)
    data = ask_in(own, "explore.experts", run=run, query=4).data
    shares, logits = data["chosen_shares"], data["logits"]
    if data["score"] == "topk_softmax":
        again = [math.exp(z - data["log_sum_chosen"]) for z in logits]
    elif data["renormalises"]:
        again = [share / sum(shares) for share in shares]
    elif data["score"] == "sigmoid":
        again = [1 / (1 + math.exp(-z)) for z in logits]
    else:
        again = [math.exp(z - data["log_sum"]) for z in logits]
    assert [x * data["scale"] for x in again] == pytest.approx(data["weights"], **CLOSE)
    balance = data["n_experts"] * sum(f * p for f, p in zip(data["among"], data["means"], strict=True))
    assert balance == pytest.approx(data["balance"], **CLOSE)
    assert [n / data["n_tokens"] for n in data["counts"]] == pytest.approx(data["used"], **CLOSE)


@pytest.mark.slow
def test_weights_of_a_head_with_a_sink(tmp_path: Path) -> None:
    own, run = _tiny("gpt_oss", tmp_path)
    found = ask_in(own, "explore.cell", run=run, at="layers.0.mixer", head=1, query=4)
    again = (found.arrays["scores"] - found.arrays["log_sums"][4]).exp()
    assert torch.allclose(again, found.arrays["row"], atol=1e-5)
    product = ask_in(own, "explore.product", run=run, at="layers.0.mixer", head=1, query=4).data
    assert math.exp(product["score"] - product["log_sum"]) == pytest.approx(product["weight"], **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mamba", "jamba"])
def test_lengths_of_a_state(family: str, tmp_path: Path) -> None:
    own, run = _tiny(family, tmp_path)
    found = ask_in(own, "explore.states", run=run, query=3)
    data = found.data
    address = next(a for a in own.runs.get(run).values if a.endswith(".state length")).removesuffix(" length")
    state = own.runs.exact(run, address)[0, 3].flatten()
    assert data["made"]["n"] == len(state)
    assert data["made"]["first"] == pytest.approx(state[:3].tolist(), **CLOSE)
    assert found.arrays["firsts"][0, 3].tolist() == data["made"]["first"]
    assert float(state.norm()) == pytest.approx(data["length"], **CLOSE)
    assert data["sizes"] == [len(state)] * len(data["layers"])
    assert data["deltas"]["sum"] / data["deltas"]["n"] == pytest.approx(data["mean_delta"], **CLOSE)


def _tiny(family: str, folder: Path) -> tuple[Any, str]:
    record = tiny.families()[family][0]
    record.make(**next(iter(record.configs.values()))).save_pretrained(folder)
    own, name = with_folder(folder)
    return own, own.runs.make(name, Given(ids=(5, 9, 3, 7, 2, 8))).id
