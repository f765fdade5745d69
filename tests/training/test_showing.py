"""Samples and maps of a model in training: what is said of each objective, and that nothing of the run is disturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.training import checkpoint
from clearhead.training import run as running
from clearhead.training.config import DataConfig, EveryConfig, RunConfig
from clearhead.training.data.batches import Batch
from clearhead.training.data.documents import Corpus
from clearhead.training.objectives import Labels, MaskedTokens, NextToken, Regress, SourceToTarget
from clearhead.training.run import train
from clearhead.training.showing import show
from tests.training.samples import IGNORE, VOCAB, Samples, same, tiny, tiny_model
from tests.training.test_recompute import SMALL, of_family
from tests.training.test_run import written


class Held:
    """One held-out batch."""

    def __init__(self, batch: Batch | None) -> None:
        self.batch = batch

    def held_out(self) -> Any:
        return iter([self.batch] if self.batch is not None else [])


def test_a_text_is_continued_and_a_map_drawn() -> None:
    model, samples = tiny_model(tiny()).train(), Samples()
    before = torch.get_rng_state()
    shown = show(model, NextToken(), samples, "next_token")
    assert shown is not None
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    names = [line.split()[0] for line in shown.text.splitlines()]
    assert names == ["given", "written", "there"]
    tokens = samples.tokens_NT[0, : int(samples.lengths_N[0])].tolist()
    given = [int(word) for word in shown.text.splitlines()[0].split()[1:]]
    assert given == tokens[: max(1, len(tokens) // 2)]
    assert shown.svg.startswith(b"<svg") and shown.png.startswith(b"\x89PNG")


def test_of_packed_texts_it_is_the_first() -> None:
    tokens_BT = torch.arange(10)[None]
    documents_BT = torch.tensor([[3, 3, 3, 3, 5, 5, 5, 3, 3, 3]])
    batch = Batch({"tokens_BT": tokens_BT, "documents": documents_BT}, tokens_BT)
    shown = show(tiny_model(tiny()), NextToken(), Held(batch), "next_token")
    assert shown is not None and shown.text.splitlines()[0].split()[1:] == ["0", "1"]
    assert shown.text.splitlines()[2].split()[1:] == ["2", "3"]


def test_hidden_tokens_are_told_and_counted() -> None:
    model = of_family("bert", "BertForMaskedLM", {**SMALL, "intermediate_size": 24, "max_position_embeddings": 32})
    tokens_BT = torch.randint(VOCAB, (2, 8))
    targets_BT = torch.full((2, 8), IGNORE)
    targets_BT[0, [2, 5]] = 7
    batch = Batch({"tokens_BT": tokens_BT}, targets_BT)
    shown = show(model, MaskedTokens(), Held(batch), "masked_tokens")
    assert shown is not None and shown.svg
    lines = {line.split()[0]: line.split()[1:] for line in shown.text.splitlines()}
    told = model.eval()(tokens_BT[:1])[0].argmax(-1)
    expected = tokens_BT[0].clone()
    expected[[2, 5]] = told[[2, 5]]
    assert [int(word) for word in lines["told"]] == expected.tolist()
    assert [int(lines["there"][i]) for i in (2, 5)] == [7, 7]
    assert " ".join(lines["right"]) == f"{int((told[[2, 5]] == 7).sum())} of 2 hidden tokens"


def test_a_source_is_answered_and_the_crossing_drawn() -> None:
    raw = {"vocab_size": VOCAB, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    model = of_family("t5", "T5ForConditionalGeneration", {**raw, "decoder_start_token_id": 0, "eos_token_id": 1})
    batch = Samples().step(0)
    inputs = {"tokens_BT": batch.inputs["tokens_BT"], "source": batch.inputs["tokens_BT"][:, :6]}
    shown = show(model, SourceToTarget(), Held(Batch(inputs, batch.targets)), "source_to_target")
    assert shown is not None
    assert [line.split()[0] for line in shown.text.splitlines()] == ["given", "written", "there"]
    assert shown.png.startswith(b"\x89PNG") and not shown.svg


def test_labels_are_compared() -> None:
    raw = {**SMALL, "intermediate_size": 24, "max_position_embeddings": 32, "num_labels": 3}
    model = of_family("bert", "BertForSequenceClassification", raw)
    tokens_BT, targets_B = torch.randint(VOCAB, (5, 8)), torch.tensor([0, 1, 2, 0, 1])
    batch = Batch({"tokens_BT": tokens_BT}, targets_B)
    shown = show(model, Labels(), Held(batch), "labels")
    told = model.eval()(tokens_BT).argmax(-1)
    assert shown is not None
    assert shown.text.splitlines()[-1].split() == ["right", str(int((told == targets_B).sum())), "of", "5"]
    numbers = show(model, Regress(), Held(Batch(batch.inputs, torch.randn(5, 3))), "regress")
    assert numbers is not None and numbers.text.startswith("error")


def test_where_nothing_is_held_out_nothing_is_shown() -> None:
    assert show(tiny_model(tiny()), NextToken(), Held(None), "next_token") is None


@pytest.mark.slow
def test_a_run_is_the_same_with_all_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples, and the operations counted, draw no random number and move no weight."""
    path = written(tmp_path / "texts", "t.txt", [f"the cat sat on mat {i}" for i in range(40)])
    data = DataConfig(corpus=Corpus(path=path, format="lines"), tokenizer="bytes", held_out=0.2)
    every = EveryConfig(log=1, evaluate=2, save=0, held_out=0)
    config = tiny(run=RunConfig(steps=4), data=data, every=every)
    train(replace(config, every=replace(every, show=1)), out=tmp_path / "shown", quiet=True)
    monkeypatch.setattr(running, "work_of", lambda *args: None)
    monkeypatch.setattr(running, "_show", lambda *args: None)
    train(config, out=tmp_path / "plain", quiet=True)
    states = [checkpoint.read_state(tmp_path / name / "step-000004") for name in ("shown", "plain")]
    for state in states:
        del state["config"], state["random"]["python"]  # the shape checks of these tests draw from Python's
    assert same(*states)
    weights = [(tmp_path / name / "step-000004" / "model.safetensors").read_bytes() for name in ("shown", "plain")]
    assert weights[0] == weights[1]
    found = sorted(path.name for path in (tmp_path / "shown" / "samples").iterdir())
    assert found == [f"step-00000{i}.{ending}" for i in (1, 2, 3, 4) for ending in ("svg", "txt")]
    assert not (tmp_path / "plain" / "samples").exists()
