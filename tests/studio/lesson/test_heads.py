"""Chapter 4: what its figures show is what the library gives, and heads that were set by hand do what they are for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import clearhead
import clearhead.studio.lesson.heads
from clearhead.checkpoints.own import MODELS, snapshots_of
from clearhead.claims.scaled.ten_words import CAT, IT, SENTENCE
from clearhead.errors import UsageError
from clearhead.lens.heads import heads
from clearhead.studio.context import Studio
from clearhead.studio.lesson.heads import by_hand
from clearhead.studio.lesson.heads.repeats import earlier
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints

STUDIO = Studio(models=Models(), runs=None)  # type: ignore[arg-type]
PREVIOUS, PRONOUN, VERB, SAME = range(4)


def asked(name: str, **args: object) -> Answer:
    """What the operation answers at last, at once or from a thread of its own."""
    answer = ask(STUDIO, name, args)
    return answer if isinstance(answer, Answer) else list(answer)[-1]


def streamed(name: str, **args: object) -> list[Answer]:
    answers = ask(STUDIO, name, args)
    assert isinstance(answers, Iterator)
    return list(answers)


# ---- set by hand


@pytest.mark.parametrize("causal", [False, True])
def test_each_head_does_what_it_is_for(causal: bool) -> None:
    pattern_HTS = asked("heads.sentence", causal=causal).arrays["patterns"]
    assert torch.allclose(pattern_HTS.sum(-1), torch.ones(4, 10, dtype=torch.float64))
    assert all(pattern_HTS[PREVIOUS, i, i - 1] > 0.9 for i in range(1, 10))
    assert pattern_HTS[PRONOUN, IT, CAT] > 0.8
    assert pattern_HTS[VERB, SENTENCE.index("sat"), CAT] > 0.7
    assert pattern_HTS[VERB, SENTENCE.index("was"), IT] > 0.7
    assert pattern_HTS[SAME, SENTENCE.index("the"), 0] > 0.35  # "the" and "The" alike
    assert all(pattern_HTS[SAME, i].argmax() in (i, 0) for i in range(10))
    # A word with nothing to ask spreads evenly over what it sees.
    seen = CAT + 1 if causal else 10
    assert torch.allclose(pattern_HTS[PRONOUN, CAT, :seen], torch.full((seen,), 1 / seen, dtype=torch.float64))


@pytest.mark.parametrize("head", range(4))
def test_vectors_are_the_stream_times_the_heads_matrices(head: int) -> None:
    answer = asked("heads.sentence", head=head, q=3, k=5)
    a = answer.arrays
    for name in "qkv":
        assert torch.allclose(a[name], a["x"] @ a[f"w_{name}"].T, atol=1e-12)
    scores_TS = a["q"] @ a["k"].T / 2
    assert torch.allclose(a["patterns"][head], scores_TS.softmax(-1), atol=1e-12)
    assert torch.allclose(a["out"], a["side_by_side"] @ a["w_o"].T, atol=1e-12)
    assert torch.allclose(a["side_by_side"][:, 4 * head : 4 * head + 4], a["z"], atol=1e-12)
    assert torch.allclose(a["after"], a["x"] + a["out"], atol=1e-12)
    assert sum(answer.data["products"]) == pytest.approx(answer.data["score"])
    assert_prints(answer, least=10)


def test_what_heads_write_has_names() -> None:
    """ "it" becomes animate by the second head, and learns by the first what stood before; each number has a name."""
    answer = asked("heads.sentence", q=IT)
    names = answer.data["names"]
    assert len(names) == len(set(names)) == answer.data["width"] == answer.arrays["x"].shape[1]
    out_TD = answer.arrays["out"]
    assert out_TD[IT, names.index("animate")] > 0.8
    was = SENTENCE.index("was")
    assert out_TD[was, names.index("before: noun")] > 0.9  # "it" is a noun, and stands before
    assert not answer.arrays["x"][:, names.index("before: noun") :].any()


def test_weights_are_those_of_the_librarys_module() -> None:
    mixer = by_hand.model().layers[0].mixer
    assert type(mixer).__name__ == "Attention"
    assert mixer.scale == 0.5
    assert asked("heads.sentence").data["parameters"] == sum(p.numel() for p in mixer.parameters())


# ---- what they cost


@pytest.mark.parametrize("n", [1, 512])
def test_many_heads_cost_what_one_does(n: int) -> None:
    answer = asked("heads.cost", n=n)
    first, *others = answer.data["rows"]
    for row in others:
        assert (row["parameters"], row["operations"]) == (first["parameters"], first["operations"])
        assert row["cells"] == row["heads"] * n * n
    assert first["parameters"] == 4 * 512 * 512
    assert first["operations"] == 2 * (4 * n * 512 * 512 + 2 * n * n * 512)
    assert_prints(answer, least=12)


# ---- along a training


def test_snapshots_show_induction_heads_forming_as_the_loss_falls() -> None:
    answers = streamed("heads.snapshots")
    n = len(snapshots_of(MODELS / "clear-2l"))
    assert [len(one.data["steps"]) for one in answers] == list(range(1, n + 1))
    last = answers[-1]
    best = last.arrays["induction"].amax(dim=(1, 2))
    assert best[0] < 0.1 < 0.5 < best[-1]
    assert last.data["second"][0] > 5
    assert last.data["second"][-1] < 0.6
    assert last.data["first"][-1] > 5
    model = clearhead.load("clear-2l")
    op = model.config.decoder.blocks[0].mixer.op
    assert last.arrays["induction"].shape == (n, len(model.config.decoder.blocks), op.n_heads)
    assert_prints(last, least=2 * n)


@pytest.mark.parametrize("at", [0, 7, 99])
def test_one_snapshot(at: int) -> None:
    answer = asked("heads.snapshot", at=at, layer=1, head=1, q=50)
    pattern_TS = answer.arrays["pattern"]
    assert pattern_TS.shape == (64, 64)
    assert answer.data["tokens"][:32] == answer.data["tokens"][32:]
    assert answer.data["target"] == 19
    assert answer.data["on_target"] == pytest.approx(float(pattern_TS[50, 19]))
    assert answer.data["induction"] == pytest.approx(float(answer.arrays["induction"][1, 1]))
    assert_prints(answer, least=3)


def test_where_no_head_is_chosen_it_is_the_best_at_the_end() -> None:
    last = asked("heads.snapshot")
    assert last.data["induction"] == pytest.approx(float(last.arrays["induction"].max()))
    first = asked("heads.snapshot", at=0)
    assert (first.data["layer"], first.data["head"]) == (last.data["layer"], last.data["head"])


def test_a_head_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="layers 0 to 1"):
        asked("heads.snapshot", layer=2, head=0)


def test_hiding_the_previous_token_undoes_induction() -> None:
    answer = asked("heads.compose")
    whole, previous, two_back, three_back = answer.data["scores"]
    assert previous < 0.2 < 0.5 < min(whole, three_back)
    assert two_back > previous
    assert answer.data["losses"][1] > 4 > max(answer.data["losses"][0], answer.data["losses"][3])
    assert_prints(answer, least=8)


# ---- cut off


@pytest.mark.parametrize(("model", "by", "n"), [("clear-2l", "gradient", 2), ("clear-2l", "random", 0)])
def test_what_is_left_without_some_heads(model: str, by: str, n: int) -> None:
    answer = asked("heads.cut", model=model, by=by, n=n)
    assert sum(map(len, answer.data["gone"])) == n
    assert answer.data["risen"] == pytest.approx(answer.data["after"] / answer.data["before"] - 1)
    for scores, gone in zip(answer.data["importance"], answer.data["gone"], strict=True):
        assert len(gone) < len(scores), "a layer keeps a head"
    assert_prints(answer, least=2)


def test_the_curve_of_cutting_heads_off() -> None:
    answers = streamed("heads.pruning", model="clear-2l")
    last = answers[-1]
    assert len(answers) == last.data["most"] + 1
    for by in last.data["orders"]:
        losses = last.data["losses"][by]
        assert len(losses) == last.data["most"] + 1
        for n in (0, last.data["most"]):
            assert losses[n] == asked("heads.cut", model="clear-2l", by=by, n=n).data["after"]
    assert_prints(last, least=3)


@pytest.mark.slow
def test_the_same_of_clear_gpt() -> None:
    answer = asked("heads.cut", model="clear-gpt", n=4)
    assert answer.data["before"] < answer.data["after"] < 1.2 * answer.data["before"]
    assert_prints(answer, least=2)


# ---- what came next last time


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("Mr Dursley saw Mr", 1),
        ("a b c a b", 2),
        ("a b x b y a b", 2),
        ("a b c d", -1),
        ("a", -1),
        ("a a", -1),
        ("a b a c a", 3),
    ],
)
def test_where_it_stood_before(text: str, where: int) -> None:
    assert earlier(text.split()) == where


def test_heads_look_at_what_followed_and_without_them_it_is_not_expected() -> None:
    """clear-2l: 30 % to the letters that followed "Mr D", and 2 % without two heads."""
    whole, cut = (asked("heads.repeats", model="clear-2l", off=off) for off in (0, 2))
    model, data = clearhead.load("clear-2l"), whole.data
    ids = model.tokenizer.encode(data["text"])
    with torch.no_grad():
        next_V = model(torch.tensor([ids]))[0, -1].softmax(-1)
    assert data["before"] == data["after"] == pytest.approx(float(next_V[ids[data["where"]]]), abs=1e-6)
    assert whole.arrays["there"].max() == pytest.approx(data["heads"][0]["weight"])
    assert cut.data["after"] < cut.data["before"]
    assert_prints(whole, least=2)
    assert_prints(cut, least=2)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"text": "Nothing twice."}, "did not occur"),
        ({"text": "a b " * 300}, "tokens long"),
        ({"model": "clear-bert"}, "does not go on"),
    ],
)
def test_repeats_says_what_it_wants(args: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        asked("heads.repeats", **{"model": "clear-2l", **args})


# ---- roles


def test_roles_are_those_that_the_library_finds() -> None:
    *told, last = streamed("heads.roles", model="clear-2l")
    assert [one.data["done"] for one in told] == sorted(one.data["done"] for one in told)
    found = heads(clearhead.load("clear-2l"))
    assert [one["role"] for one in last.data["heads"]] == [one.role for one in found]
    assert last.data["unknown"] == found.unknown
    assert sum(n for _, n in last.data["counted"]) == len(found)
    assert_prints(last, least=2)


def test_roles_of_a_model_without_heads_are_refused() -> None:
    with pytest.raises(clearhead.errors.ClearheadError):
        streamed("heads.roles", model="no-such-model")
