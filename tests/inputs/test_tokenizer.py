from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Core
from transformers import AutoTokenizer

from clearhead.errors import ClearheadError
from clearhead.inputs.spelling import byte_alphabet, readable
from clearhead.inputs.tokenizer import Tokenizer
from tests.inputs.small_tokenizers import CORPUS, TEXTS, as_gguf, train_sentencepiece, write_folder


def gpt2_folder(folder: Path, core: Core, **config: Any) -> Path:
    """vocab.json and merges.txt, as GPT-2's first checkpoints have them."""
    core.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"} | config))
    return folder


def word_piece() -> Core:
    """BERT's kind: marks around a text, and an order to cut it and to fill it up."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "key", "##s", "are", "don", "'", "t", ".", "to"]
    core = Core(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.add_special_tokens(words[:4])
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    core.enable_truncation(4)
    core.enable_padding(length=16)
    return core


def test_texts_come_back(any_tokenizer: Tokenizer) -> None:
    puts_space = any_tokenizer.pieces(any_tokenizer.encode("a"))[1] == "·a"
    for text in [*CORPUS, *TEXTS, "<bos><eos>"]:
        if puts_space and text.startswith(" "):
            continue  # such a tokenizer takes the first space for its own, as in transformers
        ids = any_tokenizer.encode(text)
        assert any_tokenizer.decode(ids, skip_special=True) == text
        assert ids == [any_tokenizer.bos_id, *any_tokenizer.encode(text, bos=False)]
        assert not any(map(any_tokenizer.is_special, ids[1:]))
        assert max(ids) < any_tokenizer.vocab_size
        assert all(any_tokenizer.pieces(ids))


def test_special_tokens_only_where_they_are_meant(any_tokenizer: Tokenizer) -> None:
    eos = any_tokenizer.token_to_id("<eos>")
    assert eos is not None
    assert any_tokenizer.is_special(eos)
    assert eos in any_tokenizer.eos_ids
    assert any_tokenizer.encode("x<eos>", parse_special=True)[-1] == eos
    assert any_tokenizer.encode_special("x<eos>") == any_tokenizer.encode("x<eos>", parse_special=True)
    assert eos not in any_tokenizer.encode("x<eos>")
    assert any_tokenizer.decode([eos]) == "<eos>"
    assert any_tokenizer.decode([eos], skip_special=True) == ""
    assert any_tokenizer.token_to_id("no such token") is None


def test_merges_that_make_a_special_token_are_undone(tmp_path: Path) -> None:
    """Files exist in which ordinary merges lead to a special token's id."""
    vocab = {letter: i for i, letter in enumerate("<eos>abx")} | {
        "<e": 10,
        "os": 11,
        "<eos": 12,
        "<eos>": 13,
        "<s>": 14,
    }
    core = Core(models.BPE(vocab=vocab, merges=[("<", "e"), ("o", "s"), ("<e", "os"), ("<eos", ">")]))
    core.add_special_tokens(["<eos>", "<s>"])
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A <eos>", special_tokens=[("<s>", 14), ("<eos>", 13)]
    )
    core.decoder = decoders.Fuse()
    core.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.core.encode("a<eos>", add_special_tokens=False).ids[-1] == 13
    ids = tokenizer.encode("a<eos>b")
    assert (ids[0], ids[-1]) == (14, 13)
    assert not any(map(tokenizer.is_special, ids[1:-1]))
    assert tokenizer.decode(ids[1:-1]) == "a<eos>b"
    assert tokenizer.encode("a<eos>b", bos=False) == ids[1:-1]


def test_vocab_and_merges_are_enough(byte_level: Core, tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path, byte_level)
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for text in [*CORPUS, *TEXTS]:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.decode(ours.encode(text)) == text
    assert {"vocab.json", "merges.txt"} <= set(ours.files())
    gpt2_folder(tmp_path, byte_level, tokenizer_class="CLIPTokenizer")
    with pytest.raises(ClearheadError, match=r"of a CLIPTokenizer.*tokenizer.json"):
        Tokenizer.from_folder(folder)


def test_tokens_that_only_the_config_names(byte_level: Core, tmp_path: Path) -> None:
    size = byte_level.get_vocab_size(with_added_tokens=False)
    added = {str(size): {"content": "<|new|>", "special": True, "normalized": False}}
    tokenizer = Tokenizer.from_folder(
        gpt2_folder(tmp_path, byte_level, added_tokens_decoder=added, eos_token="<|new|>")
    )
    assert (tokenizer.token_to_id("<|new|>"), tokenizer.eos_ids, tokenizer.vocab_size) == (size, (size,), size + 1)
    assert tokenizer.encode_special("a<|new|>")[-1] == size
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|other|>": 7}))
    with pytest.raises(ClearheadError, match="should be the token 316, and is 317"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(("say", "begins"), [(True, True), (False, False), (None, True)])
def test_the_config_says_whether_a_bos_is_added(
    byte_level: Core, tmp_path: Path, say: bool | None, begins: bool
) -> None:
    core = Core.from_str(byte_level.to_str())
    bos = core.token_to_id("<bos>")
    core.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    folder = write_folder(tmp_path, core, **({} if say is None else {"add_bos_token": say}))
    ours = Tokenizer.from_folder(folder)
    assert ours.adds_bos == begins
    assert ours.encode("a") == [bos] * begins + byte_level.encode("a").ids


def test_marks_the_config_does_not_speak_of_stay(byte_level: Core, tmp_path: Path) -> None:
    core = Core.from_str(byte_level.to_str())
    turn, eos, bos = (core.token_to_id(token) for token in ("<turn>", "<eos>", "<bos>"))
    core.post_processor = processors.TemplateProcessing(single="<turn> $A", special_tokens=[("<turn>", turn)])
    a = byte_level.encode("a").ids
    for config, want in [
        ({"add_bos_token": False}, [turn, *a]),
        ({"add_bos_token": False, "add_eos_token": False}, [turn, *a]),
        ({"add_bos_token": True, "add_eos_token": True}, [bos, *a, eos]),
        ({"add_eos_token": True}, [*a, eos]),
    ]:
        assert Tokenizer.from_folder(write_folder(tmp_path, core, **config)).encode("a") == want


def test_what_ends_a_text(byte_level: Core, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level)
    eos, turn = byte_level.token_to_id("<eos>"), byte_level.token_to_id("<turn>")
    assert Tokenizer.from_folder(folder).eos_ids == (eos,)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": turn}))
    assert Tokenizer.from_folder(folder).eos_ids == (turn, eos)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, eos]}))
    assert Tokenizer.from_folder(folder).eos_ids == (5, eos)


def test_names_may_stand_in_the_special_tokens_map(byte_level: Core, tmp_path: Path) -> None:
    byte_level.save(str(tmp_path / "tokenizer.json"))
    record = {"content": "<pad>", "lstrip": False}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<bos>", "pad_token": record}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.bos_id == byte_level.token_to_id("<bos>")
    assert tokenizer.pad_id == byte_level.token_to_id("<pad>")
    assert tokenizer.eos_ids == ()


def test_a_sentence_encoder_gets_its_marks_and_is_neither_cut_nor_filled_up(tmp_path: Path) -> None:
    word_piece().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path)
    ids = tokenizer.encode("The keys don't. to the keys are")
    assert ids == [2, 4, 5, 6, 8, 9, 10, 11, 12, 4, 5, 6, 7, 3]
    assert tokenizer.decode(ids) == word_piece().decode(ids, skip_special_tokens=False)
    assert tokenizer.decode(ids, skip_special=True) == word_piece().decode(ids)
    assert not tokenizer.adds_bos
    stream = tokenizer.stream(skip_special=True)
    assert "".join(map(stream.push, ids)) + stream.flush() == tokenizer.decode(ids, skip_special=True)


def test_a_tokenizer_with_more_ids_than_the_model_has_rows(any_tokenizer: Tokenizer) -> None:
    size = any_tokenizer.vocab_size
    any_tokenizer.check_matches(size, "model")
    any_tokenizer.check_matches(size + 64, "model")  # rows to spare
    with pytest.raises(ClearheadError, match=f"{size} ids, but the model of there/it knows only {size - 1}"):
        any_tokenizer.check_matches(size - 1, "there/it")


def test_the_highest_id_counts_not_the_number_of_tokens(tmp_path: Path) -> None:
    core = Core(models.WordLevel({"a": 0, "b": 7}, unk_token="a"))
    core.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.from_folder(tmp_path).vocab_size == 8


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_model_is_enough(tmp_path: Path, prefix: bool) -> None:
    model = train_sentencepiece(add_dummy_prefix=prefix)
    (tmp_path / "tokenizer.model").write_bytes(model)
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.pad_id, tokenizer.adds_bos) == (1, (2,), 3, True)
    same = Tokenizer.from_gguf(as_gguf(model, add_space_prefix=prefix))
    for text in [*CORPUS, *TEXTS, "a <think> b"]:
        assert tokenizer.encode(text) == same.encode(text)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False, "eos_token": "<turn>"}))
    again = Tokenizer.from_folder(tmp_path)
    assert (again.adds_bos, again.eos_ids) == (False, (again.token_to_id("<turn>"),))


@pytest.mark.parametrize(
    "options", [{"model_type": "unigram", "hard_vocab_limit": False}, {"normalization_rule_name": "nfkc"}]
)
def test_another_kind_of_sentencepiece_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    model = train_sentencepiece(**options, vocab_size=380)
    (tmp_path / "tokenizer.model").write_bytes(model)
    with pytest.raises(ClearheadError, match="not BPE over unchanged text"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("part", [0.01, 0.5, 0.999])
def test_a_sentencepiece_model_cut_short_is_refused(tmp_path: Path, part: float, sentencepiece_model: bytes) -> None:
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model[: int(len(sentencepiece_model) * part)])
    with pytest.raises(ClearheadError, match=r"tokenizer\.model"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "has no tokenizer: no tokenizer.json"),
        ({"tokenizer.model": "x"}, "tokenizer.model can't be read"),
        ({"tokenizer.json": "{"}, "tokenizer.json can't be read as a tokenizer"),
        ({"tokenizer.json": "version https://git-lfs.github.com/spec/v1"}, "tokenizer.json can't be read"),
        ({"tokenizer_config.json": "{"}, "tokenizer_config.json can't be read"),
        ({"tokenizer_config.json": "[]"}, "tokenizer_config.json should hold an object, and holds a list"),
        ({"vocab.json": "{", "merges.txt": ""}, "vocab.json and merges.txt can't be read"),
    ],
)
def test_a_bad_folder_is_a_clear_error(tmp_path: Path, files: dict[str, str], says: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ClearheadError, match=says) as caught:
        Tokenizer.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("text", ["half \ud800", 5, None, ["a"], b"a"])
def test_what_is_no_text_is_refused(any_tokenizer: Tokenizer, text: Any) -> None:
    with pytest.raises(ClearheadError, match="Only text can be tokenized"):
        any_tokenizer.encode(text)


def test_several_threads_may_use_one_tokenizer(any_tokenizer: Tokenizer) -> None:
    text = "The keys <eos>" * 200  # long enough for the threads to overlap
    want = any_tokenizer.encode(text), any_tokenizer.encode_special(text), any_tokenizer.encode_inner(text)

    def work(_: int) -> bool:
        return want == (
            any_tokenizer.encode(text),
            any_tokenizer.encode_special(text),
            any_tokenizer.encode_inner(text),
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(60)))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b" the", "·the"),
        (b"\n\n\t\r", "⏎⏎⇥␍"),
        (b"\xf0", "<0xF0>"),
        (b" \xf0\x9f", "·<0xF0><0x9F>"),
        ("👩".encode(), "👩"),
        ("\u200d".encode(), "<U+200D>"),
        (b"\x1b[31m", "<U+001B>[31m"),
        ("\u0301a".encode(), "◌\u0301a"),
        ("e\u0301".encode(), "e\u0301"),
        ("\xa0".encode(), "<U+00A0>"),
    ],
)
def test_tokens_can_be_read_on_a_terminal(raw: bytes, shown: str) -> None:
    assert readable(raw) == shown


def test_pieces_are_never_empty(any_tokenizer: Tokenizer) -> None:
    ids = [*range(any_tokenizer.vocab_size), any_tokenizer.vocab_size + 5]
    pieces = any_tokenizer.pieces(ids)
    assert all(pieces)
    assert pieces[-1] == f"<{ids[-1]}>"
    assert all(piece.isprintable() for piece in pieces)
    assert any_tokenizer.decode([ids[-1]]) == ""


def test_the_byte_alphabet_is_the_one_of_the_package() -> None:
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_added_tokens_keep_their_spelling_in_a_byte_level_text(byte_level: Core, tmp_path: Path) -> None:
    core = Core.from_str(byte_level.to_str())
    core.add_tokens([AddedToken("é", normalized=False), AddedToken("  ", normalized=False)])
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, core))
    assert tokenizer.decode(tokenizer.encode("café  au lait")) == "café  au lait"
