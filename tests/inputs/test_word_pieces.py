"""Tokenizers from vocab.txt against `transformers`' own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearhead.errors import ClearheadError
from clearhead.inputs.tokenizer import Tokenizer

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*"abcdefghijklmnopqrstuvwxyz,.!'", *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"), "the", "##ing", "über"]
TEXTS = ["The thing, being odd!", "  über\tuber  Über ", "no\u00a0break 中文 the", "", "can't [MASK] it", "ΣΣ the"]


def vocab(folder: Path, tokens: list[str], **config: object) -> Path:
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "config", [{}, {"do_lower_case": True}, {"do_lower_case": False}, {"strip_accents": False, "do_lower_case": True}]
)
def test_word_pieces(tmp_path, config):
    from transformers import BertTokenizer

    ours = Tokenizer.from_folder(vocab(tmp_path, MARKS + WORDS, **config))
    theirs = BertTokenizer(vocab=str(tmp_path / "vocab.txt"), **config)
    for text in TEXTS:
        assert ours.encode(text, parse_special=True) == theirs(text)["input_ids"], text
    assert ours.decode(ours.encode("the being"), skip_special=True) == "the being"


def test_a_vocabulary_with_capitals_keeps_them(tmp_path):
    ours = Tokenizer.from_folder(vocab(tmp_path, [*MARKS, "The", "the", "##s"]))
    assert ours.encode("The thes") == [2, 5, 6, 7, 3]


def test_letters(tmp_path):
    """A protein needs no white space between its residues, and may have some."""
    from transformers import EsmTokenizer

    tokens = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
    ours = Tokenizer.from_folder(vocab(tmp_path, tokens))
    theirs = EsmTokenizer(str(tmp_path / "vocab.txt"))
    for text in ("MKTAYIAKQR", "M K T", "MK<mask>A", "J1"):
        assert ours.encode(text, parse_special=True) == theirs(text)["input_ids"], text
    assert ours.decode(ours.encode("MKTA"), skip_special=True) == "MKTA"
    assert ours.pieces(ours.encode("MK")) == ["<cls>", "M", "K", "<eos>"]
    assert (ours.pad_id, ours.unk_id) == (1, 3)


def test_a_list_without_an_unknown_token_is_refused(tmp_path):
    with pytest.raises(ClearheadError, match="unknown words"):
        Tokenizer.from_folder(vocab(tmp_path, ["a", "b"]))
