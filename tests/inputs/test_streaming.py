from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer as Core
from tokenizers import decoders, models

from clearhead.inputs.stream import StreamDecoder
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.inputs.vocabulary import Vocabulary

WOMAN, JOINER, LAPTOP = "\N{WOMAN}", "\u200d", "\N{PERSONAL COMPUTER}"


def pushed(stream: StreamDecoder, ids: list[int]) -> list[str]:
    return [*(stream.push(i) for i in ids), stream.flush()]


@pytest.fixture(scope="module")
def bytes_only() -> Tokenizer:
    """256 byte tokens, and U+FFFD as a token of its own."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"\ufffd": 256}
    core = Core(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(Vocabulary(core=core, where="a test", names={}, eos_ids=(), files=dict))


def test_only_whole_code_points_come_out(bytes_only: Tokenizer) -> None:
    text = f"a{WOMAN}{JOINER}{LAPTOP}é"
    chunks = pushed(bytes_only.stream(), list(text.encode()))
    assert [chunk for chunk in chunks if chunk] == ["a", WOMAN, JOINER, LAPTOP, "é"]
    assert bytes_only.decode(list(text.encode())) == text


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_cut_emoji_is_one_mark_at_the_end(bytes_only: Tokenizer, kept: int) -> None:
    ids = [*b"a", *WOMAN.encode()[:kept]]
    assert pushed(bytes_only.stream(), ids) == ["a"] + [""] * kept + ["\ufffd"]
    assert bytes_only.decode(ids) == "a\ufffd"


def test_a_genuine_replacement_character_passes_at_once(bytes_only: Tokenizer) -> None:
    assert pushed(bytes_only.stream(), [256, 256, ord("b")]) == ["\ufffd", "\ufffd", "b", ""]


def test_a_wrong_byte_does_not_spoil_its_neighbours(bytes_only: Tokenizer) -> None:
    ids = [*WOMAN.encode(), 0xFF, ord("b")]
    assert bytes_only.decode(ids) == WOMAN + "\ufffdb"
    assert "".join(pushed(bytes_only.stream(), ids)) == WOMAN + "\ufffdb"


def test_a_decoder_is_as_new_after_a_flush(bytes_only: Tokenizer) -> None:
    stream = bytes_only.stream()
    assert "".join(pushed(stream, [0xF0])) == "\ufffd"
    assert "".join(pushed(stream, [*b"ok"])) == "ok"


@pytest.mark.parametrize("skip", [False, True])
def test_pushes_and_flush_are_decode_for_any_ids(any_tokenizer: Tokenizer, skip: bool) -> None:
    chance = random.Random(0)
    for _ in range(200):
        ids = [chance.randrange(any_tokenizer.vocab_size + 3) for _ in range(chance.randrange(30))]
        text = any_tokenizer.decode(ids, skip_special=skip)
        assert "".join(pushed(any_tokenizer.stream(skip_special=skip), ids)) == text
        assert not skip or "<turn>" not in text


def test_pushes_and_flush_are_decode_for_gemma(gemma: Tokenizer) -> None:
    chance = random.Random(0)
    for _ in range(100):
        ids = [chance.randrange(238, 494) if chance.random() < 0.5 else chance.randrange(262144) for _ in range(40)]
        chunks = pushed(gemma.stream(), ids)
        assert "".join(chunks) == gemma.decode(ids)
        assert not any(0xD800 <= ord(character) < 0xE000 for chunk in chunks for character in chunk)


def test_what_goes_on_keeps_its_space_and_a_text_loses_the_one_put_before_it(any_tokenizer: Tokenizer) -> None:
    ids = any_tokenizer.encode("The keys to the cabinet are")
    assert any_tokenizer.decode(ids, skip_special=True) == "The keys to the cabinet are"
    for cut in range(2, len(ids)):
        begin, rest = (any_tokenizer.decode(part, skip_special=True) for part in (ids[:cut], ids[cut:]))
        assert begin + rest == "The keys to the cabinet are"
