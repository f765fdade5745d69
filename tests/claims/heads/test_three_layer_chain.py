"""Three layers that build on one another."""

from __future__ import annotations

import pytest
import torch

from clearhead.claims.heads import three_layer_chain
from clearhead.claims.heads.three_layer_chain import FULL, QUICK, Task, questions
from clearhead.claims.running import Measuring
from clearhead.model.transformer import Transformer
from tests.claims.no_positions import drop_positions
from tests.claims.quick import verdict


@pytest.fixture(scope="module")
def model() -> Transformer:
    """What a quick run trains, once."""
    return three_layer_chain.train(Measuring(seed=0, quick=True), QUICK, 3)


@pytest.fixture
def trained(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(run: Measuring, task: Task, n_layers: int) -> Transformer:
        return model

    monkeypatch.setattr(three_layer_chain, "train", train)


@pytest.mark.slow
def test_it_holds(trained: None) -> None:
    assert verdict("three-layer-chain") == "holds"


@pytest.mark.slow
def test_not_without_positions(trained: None, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_positions(monkeypatch)
    assert verdict("three-layer-chain") == "does not hold"


@pytest.mark.parametrize("task", [QUICK, FULL])
def test_questions_and_where_their_answers_stand(task: Task) -> None:
    asked = questions(task, 8, torch.Generator().manual_seed(0))
    for row, tokens in enumerate(asked.tokens_BT.tolist()):
        pairs, asks = tokens[: task.start], tokens[task.start :]
        points = dict(zip(pairs[1::3], pairs[2::3], strict=True))
        for i, (how, symbol) in enumerate(zip(asks[::2], asks[1::2], strict=True)):
            steps = how - task.symbols
            assert steps == 1 + asked.two_BQ[row, i]
            answer = points[symbol] if steps == 1 else points[points[symbol]]
            assert asked.answer_BQ[row, i] == answer
            first, second = asked.hop_BQ2[row, i].tolist()
            assert (tokens[first - 1], tokens[first]) == (symbol, points[symbol])
            assert (tokens[second - 1], tokens[second]) == (points[symbol], points[points[symbol]])
