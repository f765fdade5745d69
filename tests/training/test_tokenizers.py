"""Tokenizers trained here: every text comes back, and a folder with their files is the same tokenizer anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.training.data.tokenizers import END, Kind, TokenizerConfig, train_tokenizer

TEXTS = [
    "The keys to the cabinet are on the table. The trophy did not fit in the suitcase because it was too big.",
    "def attend(q, k, v):\n    return softmax(q @ k.T / sqrt(d)) @ v\n\n\nclass Layer:\n\tpass  # 123 4567",
    "Größe über Straße, naïve café. Two  spaces,   three. the the the cabinet cabinet keys keys",
] * 3
ODD = ["", " ", "  a\r\n\t b ", "日本語 👩‍💻 \x00 ñ", f"{END} <s> [CLS]", "The  keys\n\n\n"]
LOSSLESS: tuple[Kind, ...] = ("bpe", "unigram", "bytes")
KINDS: tuple[Kind, ...] = (*LOSSLESS, "wordpiece")


def made(kind: Kind, **options: Any) -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerConfig(kind=kind, size=300, **options))


@pytest.mark.parametrize("kind", LOSSLESS)
def test_every_text_comes_back(kind: Kind) -> None:
    tokenizer = made(kind)
    for text in TEXTS + ODD:
        assert tokenizer.decode(tokenizer.encode(text, bos=False)) == text
        assert tokenizer.decode(tokenizer.encode(text), skip_special=True) == text
        assert tokenizer.unk_id not in tokenizer.encode(text) or tokenizer.unk_id is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_kept_and_something_is_learnt(kind: Kind) -> None:
    tokenizer = made(kind)
    assert tokenizer.vocab_size <= 300
    n = len(tokenizer.encode(TEXTS[0], bos=False))
    assert n == len(TEXTS[0].encode()) if kind == "bytes" else n < len(TEXTS[0]) * 0.8


def test_the_id_of_a_byte_is_its_value() -> None:
    tokenizer = made("bytes")
    assert tokenizer.encode("aé\n", bos=False) == list("aé\n".encode())
    assert tokenizer.bos_id == 256
    assert tokenizer.vocab_size == 257


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_with_its_files_is_the_same_tokenizer(kind: Kind, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = made(kind)
    for name, content in tokenizer.files().items():
        (tmp_path / name).write_bytes(content)
    again, theirs = Tokenizer.from_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert (again.bos_id, again.pad_id, again.eos_ids) == (tokenizer.bos_id, tokenizer.pad_id, tokenizer.eos_ids)
    for text in TEXTS + ODD:
        assert again.encode(text) == tokenizer.encode(text)
        if text != ODD[4]:  # there they take marks in a text for marks
            assert theirs(text)["input_ids"] == tokenizer.encode(text)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_the_same_texts_give_the_same_tokenizer(kind: Kind) -> None:
    """(A unigram's scores are sums in no fixed order.)"""
    texts = [Path(json.__file__).with_name(name).read_text() for name in ("decoder.py", "encoder.py")]
    config = TokenizerConfig(kind=kind, size=900)
    one = train_tokenizer(texts, config).files()
    assert all(train_tokenizer(texts, config).files() == one for _ in range(5))


def test_letters_inside_words_are_no_marks() -> None:
    tokenizer = made("wordpiece")
    assert {tokenizer.special[i] for i in tokenizer.special} == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    assert sorted(tokenizer.core.get_vocab().values()) == list(range(tokenizer.vocab_size))
    # Text that spells a piece is text.
    assert tokenizer.encode("##e") == tokenizer.encode("# # e")


def test_marks_stand_around_a_text() -> None:
    bpe = made("bpe")
    assert bpe.encode("a")[0] == bpe.bos_id == bpe.eos_ids[0] == bpe.pad_id
    assert made("bpe", around=False).encode("a") == bpe.encode("a", bos=False)
    piece = made("wordpiece")
    assert [piece.core.id_to_token(i) for i in piece.encode("the keys")][:: len(piece.encode("the keys")) - 1] == [
        "[CLS]",
        "[SEP]",
    ]
    marks = (("bos_token", "<s>"), ("eos_token", "</s>"), ("mask_token", "<mask>"))
    own = made("bpe", marks=marks)
    assert own.encode("a")[0] == own.token_to_id("<s>") == own.bos_id
    assert own.token_to_id("<mask>") in own.special
    assert own.eos_ids == (own.token_to_id("</s>"),)


def test_small_letters() -> None:
    tokenizer = made("wordpiece", lowercase=True)
    assert tokenizer.encode("The KEYS, café") == tokenizer.encode("the keys, cafe")
    assert made("wordpiece").encode("The") != made("wordpiece").encode("the")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "words"}, "no kind of tokenizer 'words'; there are bpe"),
        ({"kind": "bpe", "size": 257}, "more than 257 ids; size is 257"),
        ({"marks": (("end", "x"),)}, "no role 'end' for a token"),
        ({"kind": "bpe", "lowercase": True}, "lowercase is for wordpiece"),
    ],
)
def test_a_config_that_can_not_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        TokenizerConfig(**options)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_no_text_is_refused(kind: Kind) -> None:
    with pytest.raises(ClearheadError, match=r"no text to train a tokenizer on|can't be trained"):
        train_tokenizer(["", ""], TokenizerConfig(kind=kind, size=300))


def test_what_reading_the_texts_raises_is_passed_on() -> None:
    def texts() -> Any:
        yield "one"
        raise ClearheadError("line 7 is not JSON")

    with pytest.raises(ClearheadError, match="line 7 is not JSON"):
        train_tokenizer(texts(), TokenizerConfig(size=300))


def test_the_files_are_those_of_the_hub() -> None:
    files = made("bpe").files()
    assert set(files) == {"tokenizer.json", "tokenizer_config.json"}
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == END


def test_given_pieces_are_all_there_is() -> None:
    config = TokenizerConfig(kind="pieces", pieces=("ein", "##und", "##zwanzig", "##ein", "un"))
    tokenizer = train_tokenizer([], config)
    assert tokenizer.vocab_size == 3 + 5
    ids = tokenizer.encode("einundzwanzig ein")
    assert [tokenizer.core.id_to_token(i) for i in ids] == ["ein", "##und", "##zwanzig", "ein", "</s>"]
    assert tokenizer.decode(ids, skip_special=True) == "einundzwanzig ein"
    assert tokenizer.encode("zwanzig", bos=False) == [tokenizer.unk_id]
    assert (tokenizer.bos_id, tokenizer.pad_id, tokenizer.eos_ids) == (None, 0, (1,))
    with pytest.raises(UsageError, match="a bpe tokenizer is given 1 pieces"):
        TokenizerConfig(pieces=("a",))
    with pytest.raises(UsageError, match="is given 0 pieces"):
        TokenizerConfig(kind="pieces")
