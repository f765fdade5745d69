"""The logit lens, a layer at a time."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import UsageError
from clearhead.lens import logit_lens
from tests.studio.explore.asking import CAT, all_of, asked, run_of, studio
from tests.studio.snippets import assert_prints


def test_an_answer_a_layer_and_the_last_is_the_whole() -> None:
    answers = all_of("explore.lens", run=run_of(), n=64)
    whole = logit_lens(studio().models.get("clear-gpt"), CAT)
    assert [answer.data["done"] for answer in answers] == [1, 2, 3, 4, 5]
    assert torch.equal(answers[-1].arrays["ids"], whole.ids.int())
    assert torch.allclose(answers[-1].arrays["p"], whole.probabilities, atol=1e-6)
    newest = [[names[0] for names in answer.data["newest"]] for answer in answers]
    assert newest == whole.cells


def test_the_last_row_is_what_the_model_says() -> None:
    found = asked("explore.lens", run=run_of(), n=64)
    table = asked("explore.predict", run=run_of(), n=5).data["rows"]
    assert found.arrays["ids"][-1, -1].tolist() == [row["id"] for row in table]
    assert found.arrays["p"][-1, -1].tolist() == pytest.approx([row["p"] for row in table], abs=1e-6)


def test_some_places_alone() -> None:
    whole, some = asked("explore.lens", run=run_of(), n=64), asked("explore.lens", run=run_of(), first=3, n=4)
    assert some.data["places"] == [3, 4, 5, 6]
    assert torch.equal(some.arrays["ids"], whole.arrays["ids"][:, 3:7])
    assert some.data["tokens"] == whole.data["tokens"][3:7]


def test_a_token_is_followed() -> None:
    found = asked("explore.lens", run=run_of(), token=" the", n=64)
    whole = logit_lens(studio().models.get("clear-gpt"), CAT, target=" the")
    assert whole.ranks is not None
    assert torch.allclose(found.arrays["followed"], whole.values, atol=1e-6)
    assert torch.equal(found.arrays["rank"], whole.ranks.int())


@pytest.mark.parametrize("args", [{"n": 8}, {"first": 2, "n": 3, "token": 300, "top": 3}])
def test_the_copied_code_prints_the_last_column(args: dict[str, int]) -> None:
    assert_prints(asked("explore.lens", run=run_of(), **args), least=5)


def test_blanks_and_decoders_beside_encoders() -> None:
    assert_prints(asked("explore.lens", run=run_of("clear-bert", text="The cat sat."), hidden=[2]))
    assert_prints(asked("explore.lens", run=run_of("clear-translate", source="two hundred and forty one")))


def test_a_start_behind_the_text_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no token 40"):
        asked("explore.lens", run=run_of(), first=40)


def test_from_which_layer_on_the_answer_stays() -> None:
    found = asked("explore.lens", run=run_of(), n=64)
    best = found.arrays["ids"][..., 0]
    for place, row in enumerate(found.data["settled"]):
        assert (best[row:, place] == best[-1, place]).all()
        assert row == 0 or best[row - 1, place] != best[-1, place]
    assert len(set(found.data["settled"])) > 1
    assert "settled" not in all_of("explore.lens", run=run_of())[0].data
