"""Whole runs: each objective on texts of its kind, what they leave behind, and what they tell while they go."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.training.config import DataConfig, EveryConfig, ModelConfig, ObjectiveConfig, RunConfig, TrainConfig
from clearhead.training.data.documents import Corpus
from clearhead.training.run import train
from clearhead.training.trainer import Step
from clearhead.training.watch import Watch
from tests.training.samples import tiny

SIZES = {
    "vocab_size": 300,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
SEQ2SEQ = {
    "vocab_size": 300,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
}


def model(family: str, architecture: str, **changes: Any) -> ModelConfig:
    raw = {"model_type": family, "architectures": [architecture], **changes}
    return ModelConfig(family=family, config=FAMILIES[family].read(raw, "here"))


def written(folder: Path, name: str, lines: list[str]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name)


def short(**parts: Any) -> TrainConfig:
    return tiny(run=RunConfig(steps=3), every=EveryConfig(log=1, evaluate=2, save=0, held_out=0), **parts)


def check(config: TrainConfig, out: Path) -> None:
    done = train(config, out=out, quiet=True)
    assert done.checkpoint == out / "step-000003"
    lines = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    assert [line["step"] for line in lines if "held_out_loss" in line] == [2, 3]
    loaded = clearhead.load(done.checkpoint)
    assert not loaded.training and not done.model.training
    for (name, a), b in zip(loaded.named_parameters(), done.model.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert loaded.tokenizer.encode("the cat") == done.model.tokenizer.encode("the cat")


def test_masked_tokens(tmp_path: Path) -> None:
    path = written(tmp_path / "texts", "t.txt", [f"the cat sat on mat {i} and saw dog {i % 7}" for i in range(40)])
    data = DataConfig(corpus=Corpus(path=path, format="lines"), tokenizer="wordpiece", vocab_size=60, held_out=0.2)
    made = model("bert", "BertForMaskedLM", **SIZES)
    check(short(model=made, data=data, objective=ObjectiveConfig(name="masked_tokens")), tmp_path / "run")


def test_source_to_target(tmp_path: Path) -> None:
    path = written(tmp_path / "texts", "t.tsv", ["a\tb", *(f"{i}\tnumber {i * i}" for i in range(40))])
    corpus = Corpus(path=path, columns=("a", "b"))
    data = DataConfig(corpus=corpus, tokenizer="bytes", held_out=0.2)
    made = model("bart", "BartForConditionalGeneration", **SEQ2SEQ)
    objective = ObjectiveConfig(name="source_to_target", label_smoothing=0.1)
    config = short(model=made, data=data, objective=objective)
    check(replace(config, batch=replace(config.batch, length=24)), tmp_path / "run")


def test_labels(tmp_path: Path) -> None:
    path = written(tmp_path / "texts", "t.tsv", ["text\tkind", *(f"cat {i}\t{i % 2}" for i in range(40))])
    corpus = Corpus(path=path, columns=("text",), label="kind")
    data = DataConfig(corpus=corpus, tokenizer="wordpiece", vocab_size=60, held_out=0.2)
    made = model("bert", "BertForSequenceClassification", **SIZES)
    check(short(model=made, data=data, objective=ObjectiveConfig(name="labels")), tmp_path / "run")


def test_next_token_and_its_report(tmp_path: Path) -> None:
    path = written(tmp_path / "texts", "t.txt", [f"the cat sat on mat {i}" for i in range(40)])
    data = DataConfig(corpus=Corpus(path=path, format="lines"), tokenizer="bytes", held_out=0.2)
    check(short(data=data), tmp_path / "run")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["bits_per_byte"] > 0 and 0 <= report["accuracy"] <= 1
    found = clearhead.evaluate(clearhead.load(tmp_path / "run" / "step-000003"), {"x": "the cat"})
    assert found.n_tokens == 7


def test_a_text_too_small_to_hold_documents_out_reports_no_more_than_it_measured(tmp_path: Path) -> None:
    path = written(tmp_path / "texts", "t.txt", [f"the cat sat on mat {i}" for i in range(40)])
    check(short(data=DataConfig(corpus=Corpus(path=path), tokenizer="bytes", held_out=0.2)), tmp_path / "run")
    assert "bits_per_byte" not in json.loads((tmp_path / "run" / "report.json").read_text())


def test_a_family_without_words_for_a_model_is_refused_before_the_run(tmp_path: Path) -> None:
    path = written(tmp_path / "texts", "t.txt", ["the cat"] * 40)
    data = DataConfig(corpus=Corpus(path=path, format="lines"), tokenizer="bytes")
    with pytest.raises(ClearheadError, match="qk_norm"):
        train(short(data=data, model=replace(tiny().model, qk_norm=True)), out=tmp_path / "run", quiet=True)
    assert not list((tmp_path / "run").glob("step-*"))


def step(number: int, loss: float, n_targets: float) -> Step:
    return Step(number=number, loss=loss, n_targets=n_targets, lr=0.1, norm=1.0, n_slots=8)


def test_a_line_tells_the_mean_over_the_targets_since_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Watch(tmp_path, 3, every=2) as watch:
        watch.step(step(1, 4.0, 3))
        watch.step(step(2, 0.0, 1))
        watch.step(step(3, 1.0, 5))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [(line["step"], line["loss"]) for line in lines] == [(2, 3.0), (3, 1.0)]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].startswith("step 2 of 3  loss 3.0000  lr 1.00e-01")


def test_lines_of_later_steps_and_broken_ones_are_forgotten(tmp_path: Path) -> None:
    lines = [json.dumps({"step": i, "loss": 1.0}) for i in range(1, 6)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 6, "lo']))
    with Watch(tmp_path, 9, first=3, quiet=True):
        pass
    assert (tmp_path / "metrics.jsonl").read_text() == "\n".join(lines[:3]) + "\n"


def test_a_bar_is_drawn_for_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Watch(tmp_path, 2, every=1) as watch:
        assert watch.bar is not None
        watch.step(step(1, 2.0, 1))
        watch.note("a [note]")
        task = watch.bar.tasks[0]
        assert (task.completed, task.total, task.fields["loss"]) == (1, 2, 2.0)


def test_a_run_does_not_write_among_its_texts(tmp_path: Path) -> None:
    written(tmp_path / "texts", "t.txt", ["the cat"] * 40)
    data = DataConfig(corpus=Corpus(path=str(tmp_path / "texts")), tokenizer="bytes")
    with pytest.raises(ClearheadError, match="lies in the folder of the data"):
        train(short(data=data), out=tmp_path / "texts" / "run", quiet=True)
    assert [path.name for path in (tmp_path / "texts").iterdir()] == ["t.txt"]


def test_a_checkpoint_loads_in_transformers_with_the_same_loss(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="a test dependency")
    path = written(tmp_path / "texts", "t.txt", [f"the cat sat on mat {i}" for i in range(40)])
    data = DataConfig(corpus=Corpus(path=path, format="lines"), tokenizer="bpe", vocab_size=280, held_out=0.2)
    sizes = replace(tiny().model, family="qwen3", qk_norm=True, dropout=0.0)
    done = train(short(data=data, model=sizes), out=tmp_path / "run", quiet=True)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(done.checkpoint)
    tokenizer = transformers.AutoTokenizer.from_pretrained(done.checkpoint)
    text = "the cat sat"
    ids = [done.model.tokenizer.bos_id, *tokenizer(text, add_special_tokens=False).input_ids]
    assert ids == done.model.tokenizer.encode(text)
    tokens_BT = torch.tensor([ids])
    with torch.no_grad():
        loss = float(theirs.eval()(tokens_BT, labels=tokens_BT).loss)
    assert clearhead.evaluate(done.model, {"x": text}).loss == pytest.approx(loss, rel=1e-5)
