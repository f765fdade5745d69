"""What is expected at a place: the table, the losses along a text, and the parts of a logit."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import attribution
from clearhead.ops.sampling import adjust, keep_top_k
from clearhead.studio.explore import passes
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, ask
from tests.studio.explore.asking import CAT, asked, run_of, studio
from tests.studio.snippets import assert_prints

MASKED = "The cat sat on the [MASK] because it was tired."


@pytest.fixture(scope="module")
def model() -> clearhead.Transformer:
    return studio().models.get("clear-gpt")


@pytest.fixture(scope="module")
def logits_TV(model: clearhead.Transformer) -> torch.Tensor:
    return model(torch.tensor([model.tokenizer.encode(CAT)]))[0].detach()


@pytest.mark.parametrize("position", [0, 4, -1])
def test_the_table_is_what_the_model_says_there(logits_TV: torch.Tensor, position: int) -> None:
    data = asked("explore.predict", run=run_of(), position=position, n=5).data
    logits_V = logits_TV[position]
    best = logits_V.topk(5)
    assert [row["id"] for row in data["rows"]] == best.indices.tolist()
    assert [row["logit"] for row in data["rows"]] == pytest.approx(best.values.tolist(), rel=1e-6, abs=1e-5)
    assert [row["p"] for row in data["rows"]] == pytest.approx(logits_V.softmax(-1)[best.indices].tolist(), abs=1e-5)
    assert data["position"] == position % len(logits_TV)


def test_what_is_dropped_has_no_probability_and_the_rest_share_it(logits_TV: torch.Tensor) -> None:
    data = asked("explore.predict", run=run_of(), n=20, temperature=0.7, top_k=12, top_p=0.9).data
    after_V = adjust(logits_TV[-1:], temperature=0.7, top_k=12, top_p=0.9)[0].softmax(-1)
    assert [row["after"] for row in data["rows"]] == pytest.approx(
        [float(after_V[r["id"]]) for r in data["rows"]], abs=1e-6
    )
    assert [row["kept"] for row in data["rows"]] == [row["after"] > 0 for row in data["rows"]]
    assert data["kept"] == int((after_V > 0).sum()) <= 12
    assert sum(row["after"] for row in data["rows"]) == pytest.approx(1.0, abs=1e-6)


def test_top_k_alone_keeps_the_k_best(logits_TV: torch.Tensor) -> None:
    data = asked("explore.predict", run=run_of(), top_k=3).data
    assert data["kept"] == int(keep_top_k(logits_TV[-1:], 3).isfinite().sum()) == 3


def test_the_next_word_of_the_text_has_its_rank_and_its_cost(
    model: clearhead.Transformer, logits_TV: torch.Tensor
) -> None:
    data = asked("explore.predict", run=run_of(), position=3).data
    token = model.tokenizer.encode(CAT)[4]
    p_V = logits_TV[3].softmax(-1)
    assert data["actual"]["id"] == token
    assert data["actual"]["rank"] == 1 + int((p_V > p_V[token]).sum())
    assert data["actual"]["loss"] == pytest.approx(-float(p_V[token].log()), abs=1e-5)
    assert asked("explore.predict", run=run_of(), position=-1).data["actual"] is None


def test_entropy_is_of_the_whole_vocabulary(logits_TV: torch.Tensor) -> None:
    data = asked("explore.predict", run=run_of(), n=1).data
    p_V = logits_TV[-1].double().softmax(-1)
    assert data["entropy"] == pytest.approx(float(-(p_V * p_V.log()).sum()), abs=1e-5)
    assert data["as_many"] == pytest.approx(float(torch.tensor(data["entropy"]).exp()), rel=1e-6)


def test_a_hidden_word_is_filled_in() -> None:
    bert = studio().models.get("clear-bert")
    run = run_of("clear-bert", text="The cat sat on the mat.")
    ids = bert.tokenizer.encode("The cat sat on the mat.")
    hidden = list(ids)
    hidden[2] = bert.tokenizer.token_to_id("[MASK]")
    found = asked("explore.predict", run=run, position=2, hidden=[2])
    expected_V = bert(torch.tensor([hidden]))[0, 2]
    assert found.data["rows"][0]["id"] == int(expected_V.argmax())
    assert found.data["actual"]["id"] == ids[2]
    assert not found.data["foretells"]
    assert_prints(found)


def test_what_a_mask_of_the_text_hides_is_not_known() -> None:
    run = run_of("clear-bert", text=MASKED)
    mask = studio().models.get("clear-bert").tokenizer.token_to_id("[MASK]")
    place = [token.id for token in studio().runs.get(run).tokens].index(mask)
    found = asked("explore.predict", run=run, position=place)
    assert found.data["actual"] is None
    assert_prints(found)


@pytest.mark.parametrize(
    "args",
    [{}, {"position": 2, "n": 3}, {"temperature": 0.5, "top_k": 40, "top_p": 0.9}, {"position": 0, "temperature": 2.0}],
)
def test_the_copied_code_prints_the_table(args: dict[str, float]) -> None:
    assert_prints(asked("explore.predict", run=run_of(), **args), least=4)


def test_losses_along_the_text(model: clearhead.Transformer, logits_TV: torch.Tensor) -> None:
    found = asked("explore.losses", run=run_of())
    ids = torch.tensor(model.tokenizer.encode(CAT))
    expected = torch.nn.functional.cross_entropy(logits_TV[:-1], ids[1:], reduction="none")
    assert torch.allclose(found.arrays["loss"], expected, atol=1e-5)
    assert found.data["mean"] == pytest.approx(float(expected.mean()), abs=1e-5)
    assert len(found.arrays["entropy"]) == len(ids) == len(found.data["tokens"])
    assert_prints(found)


@pytest.mark.parametrize("by", ["layer", "head", "neuron", "position"])
@pytest.mark.parametrize("against", [None, " a"])
def test_the_parts_of_a_logit_sum_to_it(model: clearhead.Transformer, by: str, against: str | None) -> None:
    found = asked("explore.attribution", run=run_of(), token=" the", against=against, by=by)
    whole = attribution(model, CAT, " the", against=against, by=by)
    assert sum(part["value"] for part in found.data["parts"]) == pytest.approx(found.data["logit"], abs=1e-4)
    assert found.data["logit"] == pytest.approx(float(whole.logit), abs=1e-6)
    assert found.data["total"] == pytest.approx(float(whole.total), abs=1e-6)
    assert_prints(found, least=3)


def test_the_whole_table_is_printed_where_it_is_drawn() -> None:
    found = asked("explore.attribution", run=run_of(), by="head", table=True)
    assert len(found.printed) == 2 + found.arrays["values"].numel()
    assert_prints(found)


def test_without_a_token_the_likeliest_is_taken(logits_TV: torch.Tensor) -> None:
    assert asked("explore.attribution", run=run_of(), position=5).data["token"]["id"] == int(logits_TV[5].argmax())


def test_an_encoder_beside_a_decoder_is_taken_apart_too() -> None:
    run = run_of("clear-translate", source="two hundred and forty one")
    found = asked("explore.attribution", run=run, position=1, by="head")
    assert any("cross-attention head" in part["name"] for part in found.data["parts"])
    assert_prints(found)
    assert_prints(asked("explore.predict", run=run, position=1))


@pytest.mark.parametrize("args", [{"position": 99}, {"position": -99}])
def test_a_place_that_is_not_there_is_refused(args: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="there is no token"):
        asked("explore.predict", run=run_of(), **args)


def test_a_model_without_a_vocabulary_says_what_it_gives() -> None:
    with pytest.raises(ClearheadError, match="gives labels, not tokens"):
        asked("explore.predict", run=run_of("clear-vit", picture="bag"))


def test_a_model_that_foretells_hides_nothing() -> None:
    with pytest.raises(UsageError, match="knows no mask"):
        asked("explore.predict", run=run_of(), hidden=[1])


def test_an_answer_of_several_tokens_is_refused() -> None:
    with pytest.raises(ClearheadError, match="must be one token"):
        asked("explore.attribution", run=run_of(), token=" seventeen elephants")


def test_a_run_that_is_not_kept_is_refused() -> None:
    with pytest.raises(UsageError, match="no longer kept"):
        asked("explore.predict", run="0" * 64)


def test_what_sampling_makes_of_it_is_printed_where_it_acts() -> None:
    plain, acting = (asked("explore.predict", run=run_of(), n=4, **how) for how in ({}, {"top_k": 3}))
    assert (plain.data["acts"], acting.data["acts"]) == (False, True)
    assert len(plain.printed) == 4 * 2 + 1 and len(acting.printed) == 4 * 3 + 1
    assert "adjust" not in plain.python
    assert plain.data["here"] == acting.data["here"] == studio().runs.get(run_of()).tokens[-1].text


def test_what_takes_a_pass_is_asked_beside_what_is_short() -> None:
    run = run_of("clear-bert", text="A word that nobody asked about.")
    args = {"run": run, "position": 3, "hidden": [3]}
    first = ask(studio(), "explore.predict", args)
    assert not isinstance(first, Answer)
    assert len(list(first)) == 1
    assert isinstance(ask(studio(), "explore.predict", {**args, "top_k": 5}), Answer)
    for name in ("explore.losses", "explore.attribution", "explore.ablate"):
        assert not isinstance(ask(studio(), name, {"run": run}), Answer)


def test_a_kept_pass_holds_no_model() -> None:
    asked("explore.ablate", run=run_of(), off=[{"layer": 0}])
    assert len(passes._streams) > 0
    fresh: KeptResults[object] = KeptResults(1)
    for stream in passes._streams._values.values():
        fresh.put((), stream)  # refuses what holds a model


def test_the_dearest_token_is_the_one_that_cost_most() -> None:
    found = asked("explore.losses", run=run_of())
    assert float(found.arrays["loss"][found.data["dearest"]]) == float(found.arrays["loss"].max())
