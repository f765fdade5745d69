"""Reports: the numbers of `look`, a head chosen sensibly, errors that say what there is."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import attention_report, look
from clearhead.lens.attend import Survey
from clearhead.lens.report import Glance
from tests.oracles import TOLERANCE, error

TEXT = "the keys to it"


def test_one_head_is_the_pattern_that_look_gives(model):
    report = attention_report(model, TEXT, layer=1, head=3)
    assert torch.equal(report.pattern_TS, look(model, TEXT)["layers.1.mixer.pattern"][0, 3])
    assert error(report.pattern_TS.sum(-1), torch.ones(15)) <= TOLERANCE[torch.float32]
    assert (report.layer, report.head, report.title) == (1, 3, "Layer 1, head 3")
    assert [token.id for token in report.tokens] == model.tokenizer.encode(TEXT)


def test_a_layer_alone_is_the_mean_of_its_heads(model):
    report = attention_report(model, TEXT, layer=0)
    assert torch.equal(report.pattern_TS, look(model, TEXT)["layers.0.mixer.pattern"][0].mean(0))
    assert report.title == "Layer 0, mean of 4 heads"
    assert len(report.glances) == 4


def test_without_a_choice_the_head_that_looks_hardest_further_back_is_shown(model):
    report = attention_report(model, TEXT)
    patterns = look(model, TEXT)
    weights = {
        (layer, head): patterns[f"layers.{layer}.mixer.pattern"][0, head, -1, 1:-2].max()
        for layer in range(2)
        for head in range(4)
    }
    assert (report.layer, report.head) == max(weights, key=weights.__getitem__)
    assert torch.equal(report.pattern_TS, patterns[f"layers.{report.layer}.mixer.pattern"][0, report.head])
    assert len(report.glances) == 8
    assert "8 heads" in report.why
    for glance in report.glances:
        row_S = patterns[f"layers.{glance.layer}.mixer.pattern"][0, glance.head, -1]
        assert glance.weight == pytest.approx(float(row_S[1:-2].max()))
        assert row_S[glance.key] == row_S[1:-2].max()


def test_a_survey_keeps_the_hardest_look_of_all_layers_not_of_the_last():
    survey = Survey()
    for layer, weight in enumerate((0.3, 0.8, 0.5)):
        pattern_BHTS = torch.zeros(1, 2, 6, 6)
        pattern_BHTS[0, 1, -1, [0, 2, 4, 5]] = torch.tensor([0.9, weight, 0.85, 0.95])
        assert survey(f"layers.{layer}.mixer", "pattern", pattern_BHTS) is pattern_BHTS
    assert survey.best == Glance(1, 1, 2, pytest.approx(0.8))
    assert float(survey.pattern_TS[-1, 2]) == pytest.approx(0.8)
    assert len(survey.glances) == 6


def test_next_tokens_are_the_likeliest_that_the_tokenizer_can_write(model):
    report = attention_report(model, TEXT, layer=0, head=0, top=3)
    with torch.no_grad():
        logits_V = model(torch.tensor([model.tokenizer.encode(TEXT)]))[0, -1]
    shares, ids = logits_V[: model.tokenizer.vocab_size].softmax(-1).topk(3)
    assert [token.id for token in report.next_tokens] == ids.tolist()
    assert [token.probability for token in report.next_tokens] == pytest.approx(shares.tolist(), rel=1e-4)


def test_a_model_that_sees_both_ways_has_a_map_but_no_next_token(make):
    report = attention_report(make(kind="full"), TEXT, layer=0, head=0)
    assert report.next_tokens == ()
    assert report.pattern_TS.triu(1).any()


@pytest.mark.parametrize("text", ["", "a", "ab"])
def test_short_texts(model, text):
    if not text:
        with pytest.raises(ClearheadError, match="empty"):
            attention_report(model, text)
        return
    report = attention_report(model, text)
    assert report.pattern_TS.shape == (len(text) + 1, len(text) + 1)
    report.show()


@pytest.mark.parametrize(
    ("layer", "head", "words"), [(2, 0, "0 to 1"), (-1, 0, "0 to 1"), (0, 4, "0 to 3"), (1, -1, "0 to 3")]
)
def test_what_is_not_there_is_refused_with_what_is(model, monkeypatch, layer, head, words):
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    with pytest.raises(ClearheadError, match=words):
        attention_report(model, TEXT, layer=layer, head=head)


def test_a_head_without_a_layer_and_several_texts_are_refused(model):
    with pytest.raises(UsageError, match="--layer"):
        attention_report(model, TEXT, head=1)
    with pytest.raises(ClearheadError, match="one"):
        attention_report(model, torch.zeros(2, 3, dtype=torch.long))
