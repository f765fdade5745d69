"""What a figure puts into its formulas: worked out, it gives the number that is shown."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import torch

import clearhead.studio.catalogue  # noqa: F401 (it registers the operations)
from clearhead.studio.context import Studio
from clearhead.studio.lesson.scale.terms import shapes_of, terms_of, traffic_of
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from clearhead.studio.presets import costed, counted, published

torch.set_num_threads(1)


@cache
def studio() -> Studio:
    return Studio(models=Models(), runs=None)  # type: ignore[arg-type]


def asked(name: str, **args: Any) -> Answer:
    found = ask(studio(), name, args)
    answer = found if isinstance(found, Answer) else list(found)[-1]
    assert isinstance(answer, Answer)
    return answer


def close(value: float, rel: float = 1e-5) -> Any:
    return pytest.approx(value, rel=rel, abs=1e-9)


# ---- shares of a softmax: the exponential of a score over the sum of all


def test_shares_of_a_softmax() -> None:
    fed = asked("block.text").data
    assert [math.exp(one["score"] - fed["log_sum"]) for one in fed["answers"]] == [
        close(one["share"]) for one in fed["answers"]
    ]
    for blank in asked("masks.fill").data["blanks"]:
        assert math.exp(blank["best"][0]["score"] - blank["log_sum"]) == close(blank["best"][0]["share"])
    for row in asked("masks.hide", seed=3).data["hidden"]:
        assert math.exp(row["score"] - row["log_sum"]) == close(row["share"])
    for cell in asked("recurrence.agreement").data["cells"]:
        assert [math.exp(score - cell["log_sum"]) for score in cell["scores"]] == [
            close(one) for one in cell["chances"]
        ]
    one = asked("masks.predictions").data
    assert [math.exp(each["score"] - each["log_sum"]) for each in one["scores"]] == [
        close(one["one_pass"]),
        close(one["prefix_alone"]),
    ]
    assert [-math.log(row["told"]) for row in one["rows"]] == [close(row["loss"]) for row in one["rows"]]
    assert one["apart"] / one["largest"] == close(one["difference"])


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.7, "top_k": 0, "top_p": 0.5}, {"temperature": 0.0}])
def test_what_is_drawn_from(settings: dict[str, Any]) -> None:
    data = asked("masks.write", **settings).data
    for row in data["rows"]:
        assert math.exp(row["score"] - data["log_sum"]) == close(row["before"])
        if row["adjusted"] is not None:
            assert math.exp(row["adjusted"] - data["adjusted_log_sum"]) == close(row["after"], 1e-4)
            if data["temperature"]:
                assert row["score"] / data["temperature"] == close(row["adjusted"], 1e-4)
    assert data["n_kept"] <= data["n_by_k"] <= data["n_all"]
    if data["n_kept"] <= len(data["kept"]):
        assert sum(data["kept"]) == close(data["mass_kept"])


def test_the_second_mr() -> None:
    data = asked("heads.repeats", off=1).data
    assert math.exp(data["working"]["score"] - data["working"]["log_sum"]) == close(data["heads"][0]["weight"])
    for one, share in zip(data["scores"], (data["before"], data["after"]), strict=True):
        assert math.exp(one["score"] - one["log_sum"]) == close(share)
    for one in data["next"]:
        assert math.exp(one["score"] - data["scores"][1]["log_sum"]) == close(one["share"])


def test_rows_of_scores_give_the_weights() -> None:
    rows = asked("attention.rows", beta=1.3)
    for name, scores in (("with", "scaled"), ("without", "unscaled")):
        weights_TS = torch.as_tensor(rows.arrays[scores]).softmax(-1)
        assert rows.data[name] == [close(float(weights_TS[i, j])) for i, j in enumerate(rows.data["readers"])]
    width = asked("attention.width", d=64).arrays
    for scores, weights in (("row_scores", "row"), ("scaled_row_scores", "scaled_row")):
        assert torch.allclose(torch.as_tensor(width[scores]).softmax(-1), torch.as_tensor(width[weights]))
    snapshot = asked("heads.snapshot")
    weights_S = torch.as_tensor(snapshot.arrays["row_scores"]).softmax(-1)
    assert float(weights_S[snapshot.data["largest"]]) == close(snapshot.data["largest_weight"])
    learned = asked("lookup.learn", step=40)
    assert torch.as_tensor(learned.arrays["scores"]).softmax(-1).diagonal().tolist() == close(learned.data["own"])
    apart = torch.as_tensor(learned.arrays["answers"]) - torch.as_tensor(learned.arrays["values"])
    assert float(apart.square().mean()) == close(learned.data["loss"])


# ---- lengths, means and shares


@pytest.mark.parametrize("part", ["embed", "mixer.add", "mixer.pre", "mixer", "ffn", "final"])
def test_lengths_are_the_roots_of_sums_of_squares(part: str) -> None:
    answer = asked("block.part", part=part)
    for i, vector in enumerate(answer.data["vectors"]):
        n = torch.as_tensor(answer.arrays[f"v{i}"]).numel()
        assert math.sqrt(n) * vector["rms"] == close(vector["length"])
    if "written" in answer.data:
        n = torch.as_tensor(answer.arrays["v1"]).numel()
        assert math.sqrt(n) * answer.data["written_rms"] == close(answer.data["written"])


def test_means_and_shares() -> None:
    diagram = asked("block.diagram").data
    first, last = diagram["ends"]
    assert math.sqrt(diagram["d_model"]) * diagram["rms"][first] == close(diagram["start"])
    assert math.sqrt(diagram["d_model"]) * diagram["rms"][last] == close(diagram["steps"][-1]["stream"])
    shuffled = asked("positions.shuffle", order=[2, 1, 0], kind="rotary").data
    assert [a / b for a, b in zip(shuffled["apart"], shuffled["lengths"], strict=True)] == close(shuffled["changed"])
    alike = asked("positions.similarity").data
    assert alike["dot"] / (alike["d"] / 2) == close(alike["value"])
    assert sum(alike["near_curve"]) / len(alike["near_curve"]) == close(alike["near"])
    assert sum(alike["far_curve"]) / len(alike["far_curve"]) == close(alike["far"])
    assert alike["kept_pairs"] / alike["pairs"] == close(alike["order_kept"], 1e-12)
    assert alike["at_turn"][1] > alike["at_turn"][0]
    turned = asked("positions.rotary", shift=30).data
    assert sum(turned["parts"]) == close(turned["score"]) and sum(turned["unmoved_parts"]) == close(turned["unmoved"])
    left = asked("attention.leftover").data
    assert [sum(row[k] for row in left["layers"]) / len(left["layers"]) for k in range(3)] == close(left["mean"])


# ---- what a state, a pass and a price are made of


def test_terms_multiply_out_for_every_published_model() -> None:
    for name in published():
        of = counted(name)
        cost = costed(name, of)
        if cost.writes:
            terms = terms_of(of, 3, 1000 if cost.tokens else cost.ask.context, 2)
            assert sum(term["per_token"] for term in terms) == of.state(1, 1, 2).per_token, name
            if cost.tokens and cost.ask.context >= 1000:
                assert sum(term["total"] for term in terms) == of.state(3, 1000, 2).total, name
        for part, shapes in shapes_of(of).items():
            assert sum(n * math.prod(shape) for n, shape in shapes) == of.parameters.parts[part], (name, part)
        moved = traffic_of(of, cost.tokens, cost.ask.fast_memory // 2)
        both = [
            (t["layers"] * t["heads"], t["queries"], t["keys"], t["d_key"], t["d_value"], t["blocks"]) for t in moved
        ]
        assert sum(2 * h * ((n + m) * (k + v) + 4 * n * m) for h, n, m, k, v, _ in both) == cost.traffic.standard, name
        assert sum(2 * h * (m * (k + v) + b * n * (k + 2 * v)) for h, n, m, k, v, b in both) == cost.traffic.tiled, name


@pytest.mark.parametrize(("n", "tile"), [(16, 4), (10, 4), (24, 8)])
def test_numbers_moved_by_tiles(n: int, tile: int) -> None:
    for step in range(37):
        data = asked("scale.tiles", n=n, tile=tile, step=step).data
        assert 2 * data["width"] * data["keys_in"] + 3 * data["width"] * data["rows_passed"] == data["moved"], step


@pytest.mark.parametrize("preset", ["llama3-70b", "mamba-2.8b", "gemma3-270m"])
def test_steps_that_wait(preset: str) -> None:
    data = asked("scale.steps", preset=preset, context=5000).data
    for waits, steps in ((data["waits"], data["at"]["model"]), (data["scans"], data["at"]["scan"])):
        in_scans = waits["scans"] * (data["chunk"] + data["chunks"])
        assert waits["at_once"] + in_scans + waits["recurrent"] * data["context"] == steps


def test_laws_as_they_are_written_out() -> None:
    for of in ("parameters", "data", "compute"):
        data = asked("scale.laws", of=of, power=20 if of == "compute" else 9).data
        assert (data["constant"] / (data["days"] or data["at"])) ** data["alpha"] == close(data["curves"][0]["at"])
        for curve in data["curves"][1:]:
            terms = curve["terms"]
            n, d = (math.inf if terms[name] is None else terms[name] for name in ("parameters", "tokens"))
            loss = terms["E"] + terms["A"] / n ** terms["alpha"] + terms["B"] / d ** terms["beta"]
            assert loss == close(curve["at"])
        for size in data["sizes"]:
            worked_out = eval(size["put"].replace("×", "*").replace("^", "**"), {}, {})
            assert worked_out == close(size["parameters"], 1e-3), size["law"]


def test_prices_and_times() -> None:
    data = asked("scale.service").data
    for texts, told in ((1, data["alone"]), (data["together"]["texts"], data["together"])):
        step, machine = told["step"], data["machine"]
        assert max(step["flops"] / machine["peak"], step["bytes"] / machine["bandwidth"]) == close(step["seconds"])
        assert step["seconds"] / texts * 1e6 * data["price"] / 3600 == close(told["price"])
    assert 1 / data["together"]["step"]["seconds"] == close(data["together"]["each"])
    saved = data["reading"]["seconds"] - data["reading_rest"]["seconds"]
    assert saved * data["price"] / 3600 == close(data["price_saved"])
    whole = asked("cost.model", device="h100-sxm", price=12.0, batch=4).data
    assert sum(whole["activation_parts"].values()) == whole["training"]["activations"]
    assert sum(whole["recomputed_parts"].values()) == whole["training"]["activations_recomputed"]
    assert whole["parameters"]["total"] * whole["width"] == whole["weight_bytes"]
    assert (whole["device"]["memory"] - whole["weight_bytes"]) // whole["per_text"] == whole["device"]["users"]
    (row,) = asked("cost.compare", presets=["mixtral-8x7b"]).data["rows"]
    assert row["parameters"] - row["idle"] == row["active"] < row["parameters"]
    assert row["flops"]["read"]["linear"] + row["flops"]["read"]["quadratic"] == row["read"]


def test_cuts_of_the_trophy() -> None:
    data = asked("check.pronoun", model="clear-gpt").data
    for cut, share in data["cuts"].items():
        assert data["moved"][cut]["apart"] / data["moved"][cut]["length"] == close(share)
