"""Rows of random tokens that repeat, beside rows of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import UsageError
from clearhead.ops.losses import IGNORE
from clearhead.training.config import BatchConfig, DataConfig, DecoderConfig, TrainConfig
from clearhead.training.data.documents import Corpus
from clearhead.training.prepare import prepare

LENGTH = 128


def batches(folder: Path, **batch: Any) -> Any:
    texts = folder / "texts"
    texts.mkdir(exist_ok=True)
    for i in range(6):
        (texts / f"{i}.txt").write_text(f"The {i}th text tells of keys, of cabinets and of doors. " * 20)
    config = TrainConfig(
        model=DecoderConfig(family="llama", d_model=16, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=24),
        data=DataConfig(corpus=Corpus(path=str(texts)), tokenizer="bytes", held_out=0.2),
        batch=BatchConfig(rows=5, length=LENGTH, **batch),
    )
    return prepare(config, folder / "run", quiet=True)


@pytest.mark.parametrize("pack", ["plain", "documents"])
def test_some_rows_repeat_and_the_others_are_as_they_were(pack: str, tmp_path: Path) -> None:
    plain = batches(tmp_path, pack=pack, repeated=0)
    mixed = batches(tmp_path, pack=pack, repeated=2)
    batch = mixed.batches.step(3)
    assert batch.inputs["tokens_BT"].shape == batch.inputs["documents"].shape == batch.targets.shape == (5, LENGTH)
    special, sizes = set(mixed.tokenizer.special), set()
    for number in range(8):
        batch = mixed.batches.step(number)
        for tokens, targets, documents in zip(
            batch.inputs["tokens_BT"][3:], batch.targets[3:], batch.inputs["documents"][3:], strict=True
        ):
            for document in documents.unique():
                text = torch.cat([tokens[documents == document], targets[documents == document][-1:]])
                assert torch.equal(targets[documents == document], text[1:])
                assert any(torch.equal(text[n:], text[:-n]) for n in range(8, len(text) // 2 + 1))
                assert not special & set(text.tolist())
                sizes.add(len(text) - 1)
    assert sizes == {64, 128}
    batch = mixed.batches.step(3)
    if pack == "documents":
        first = plain.batches.step(0).inputs["documents"][0]
        assert torch.equal(mixed.batches.step(0).inputs["documents"][0], first)
    assert torch.equal(mixed.batches.step(0).targets[0], plain.batches.step(0).targets[0])
    again = batches(tmp_path, pack=pack, repeated=2).batches.step(3)
    assert torch.equal(again.targets, batch.targets)
    assert not torch.equal(mixed.batches.step(4).targets[3:], batch.targets[3:])


def test_what_is_held_out_is_text_alone(tmp_path: Path) -> None:
    plain, mixed = (batches(tmp_path, repeated=n).batches for n in (0, 2))
    told = [torch.cat([b.targets[b.targets != IGNORE] for b in each.held_out()]) for each in (plain, mixed)]
    assert len(told[0]) and torch.equal(*told)
    assert mixed.describe()["repeated"] == 2


def test_rows_of_text_must_be_left() -> None:
    with pytest.raises(UsageError, match="rows of text must be left"):
        BatchConfig(rows=2, repeated=2)
    with pytest.raises(UsageError, match="packed as documents or plain"):
        BatchConfig(rows=4, repeated=2, pack="rows")
