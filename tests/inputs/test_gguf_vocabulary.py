from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer as Core
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from clearhead.checkpoints.shipped import shipped_file
from clearhead.errors import ClearheadError
from clearhead.inputs.merges import derive_merges
from clearhead.inputs.tokenizer import Tokenizer
from tests.inputs.small_tokenizers import CORPUS, TEXTS, as_gguf, train_sentencepiece

# Text to ids, as transformers 5.24 gives them for the same file; test_gemma_against_transformers goes further.
GEMMA = json.loads((Path(__file__).parent / "gemma3_ids.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("seed", range(3))
def test_merges_are_every_cut_of_a_token_into_two(seed: int) -> None:
    chance = np.random.default_rng(seed)
    letters = list("ab▁é👩")
    tokens = sorted({"".join(chance.choice(letters, chance.integers(1, 6))) for _ in range(300)})
    scores = chance.integers(0, 40, len(tokens)).astype(float)  # with ties
    cuts = [
        (-scores[at], -cut, cut - len(token), at, (token[:cut], token[cut:]))
        for at, token in enumerate(tokens)
        for cut in range(1, len(token))
        if token[:cut] in tokens and token[cut:] in tokens
    ]
    assert len(cuts) > 100
    assert derive_merges(tokens, scores) == [pair for *_, pair in sorted(cuts)]
    assert derive_merges([], np.zeros(0)) == []


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_gives_the_ids_of_sentencepiece(prefix: bool) -> None:
    model = train_sentencepiece(add_dummy_prefix=prefix)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = Tokenizer.from_gguf(as_gguf(model, add_space_prefix=prefix))
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.pad_id) == (1, (2,), 3)
    for text in [*CORPUS, *TEXTS]:
        if (prefix and text.startswith(" ")) or not text:
            continue  # there transformers (our measure) puts no second space; SentencePiece does
        assert tokenizer.encode(text) == [1, *reference.encode(text)], text
        assert tokenizer.decode(tokenizer.encode(text), skip_special=True) == text


def test_a_user_defined_token_is_found_in_plain_text_and_a_control_token_is_not(sentencepiece_gguf: Any) -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_gguf)
    think, turn = tokenizer.token_to_id("<think>"), tokenizer.token_to_id("<turn>")
    assert think in tokenizer.encode("so <think>")
    assert not tokenizer.is_special(think)
    assert turn not in tokenizer.encode("so <turn>")
    assert turn in tokenizer.encode_special("so <turn>")
    assert tokenizer.is_special(turn)


def test_text_that_spells_a_byte_is_text() -> None:
    tokens = ["<unk>", "<0x0A>", "<", ">", "0", "x", "A", "0x", "0x0", "0x0A", "<0x0A"]
    metadata = {"model": "llama", "tokens": tokens, "token_type": [2, 6] + [1] * 9, "unknown_token_id": 0}
    metadata |= {"scores": [-float(i) for i in range(11)], "add_bos_token": False, "add_space_prefix": False}
    tokenizer = Tokenizer.from_gguf({f"tokenizer.ggml.{key}": value for key, value in metadata.items()})
    assert tokenizer.pieces(tokenizer.encode("<0x0A>")) == ["<0x0A", ">"]
    assert tokenizer.encode("\n") == [1]


@pytest.mark.parametrize("pre", ["gpt-2", "default", None])
def test_byte_level_gives_the_ids_of_the_tokenizer_it_came_from(
    byte_level: Core, byte_level_gguf: Any, pre: Any
) -> None:
    metadata = byte_level_gguf | {"tokenizer.ggml.pre": pre}
    if pre is None:
        del metadata["tokenizer.ggml.pre"]
    tokenizer = Tokenizer.from_gguf(metadata)
    bos, eos, turn = (byte_level.token_to_id(token) for token in ("<bos>", "<eos>", "<turn>"))
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (bos, (eos, turn))
    for text in [*CORPUS, *TEXTS]:
        assert tokenizer.encode(text) == [bos, *byte_level.encode(text).ids]
        assert tokenizer.decode(tokenizer.encode(text), skip_special=True) == text


def test_the_split_rule_is_the_one_that_is_named(byte_level_gguf: Any) -> None:
    """Llama 3 takes digits three at a time (and a word that is a token whole), Qwen 2 one at a time, GPT-2 all."""
    metadata = byte_level_gguf | {"tokenizer.ggml.merges": [], "tokenizer.ggml.tokens": []}
    letters = [*(t for t in byte_level_gguf["tokenizer.ggml.tokens"] if len(t) == 1), "12", "34", "123", "1234"]
    metadata |= {
        "tokenizer.ggml.tokens": [*letters, "<bos>", "<eos>"],
        "tokenizer.ggml.token_type": [1] * len(letters) + [3, 3],
        "tokenizer.ggml.merges": ["1 2", "3 4", "12 34"],
        "tokenizer.ggml.bos_token_id": len(letters),
        "tokenizer.ggml.eos_token_id": len(letters) + 1,
        "tokenizer.ggml.eot_token_id": len(letters) + 1,
        "tokenizer.ggml.padding_token_id": len(letters) + 1,
    }
    found = {}
    for pre in ("gpt-2", "llama-bpe", "qwen2"):
        tokenizer = Tokenizer.from_gguf(metadata | {"tokenizer.ggml.pre": pre})
        found[pre] = tokenizer.pieces(tokenizer.encode("1234", bos=False))
    assert found == {"gpt-2": ["1234"], "llama-bpe": ["123", "4"], "qwen2": ["1", "2", "3", "4"]}


def test_whether_a_bos_is_added(byte_level_gguf: Any, sentencepiece_gguf: Any) -> None:
    """What the file says goes; where it is silent, as llama.cpp does."""
    silent = {k: v for k, v in byte_level_gguf.items() if not k.endswith("add_bos_token")}
    assert not Tokenizer.from_gguf(silent).adds_bos
    assert Tokenizer.from_gguf(silent | {"tokenizer.ggml.pre": "llama-bpe"}).adds_bos
    assert Tokenizer.from_gguf(sentencepiece_gguf).adds_bos
    assert not Tokenizer.from_gguf(sentencepiece_gguf | {"tokenizer.ggml.add_bos_token": False}).adds_bos
    both = Tokenizer.from_gguf(byte_level_gguf | {"tokenizer.ggml.add_eos_token": True})
    assert both.encode("a")[0] == both.bos_id
    assert both.encode("a")[-1] == both.eos_ids[0]
    assert both.eos_ids[0] not in both.chat.encode([{"role": "user", "content": "a"}])[-4:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokenizer.ggml.model": "bert"}, "of the kind 'bert'"),
        ({"tokenizer.ggml.model": None}, "of the kind None"),
        ({"tokenizer.ggml.pre": "tomorrow"}, "the rule 'tomorrow'"),
        ({"tokenizer.ggml.tokens": []}, "no vocabulary"),
        ({"tokenizer.ggml.merges": None}, "no tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["nothing known"]}, "merges don't fit"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "has 2 values for 320 tokens"),
        ({"tokenizer.ggml.bos_token_id": 320}, "bos_token_id is 320, but the vocabulary has 320"),
        ({"tokenizer.ggml.tokens": ["a"] * 320}, "'a' stands in the vocabulary twice"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(byte_level_gguf: Any, change: dict[str, Any], says: str) -> None:
    with pytest.raises(ClearheadError, match=says) as caught:
        Tokenizer.from_gguf(byte_level_gguf | change, "model.gguf")
    assert "model.gguf" in str(caught.value)


@pytest.mark.parametrize("kind", ["byte_level_gguf", "sentencepiece_gguf"])
def test_the_saved_files_give_the_same_ids_here_and_in_transformers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_gguf(request.getfixturevalue(kind))
    for name, data in tokenizer.files().items():
        (tmp_path / name).write_bytes(data)
    again, theirs = Tokenizer.from_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(theirs, PreTrainedTokenizerFast)
    assert (again.bos_id, again.eos_ids, again.pad_id) == (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.pad_id)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (again.bos_id, again.eos_ids[0])
    for text in [*TEXTS, "<bos>", "x<turn>y<eos>"]:
        assert again.encode(text) == tokenizer.encode(text)
        assert theirs("z" + text)["input_ids"] == again.encode_special("z" + text)
    messages = [{"role": "user", "content": " The keys "}]
    assert again.chat.render(messages) == tokenizer.chat.render(messages)
    assert theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"] == again.chat.encode(messages)
    assert again.files() == {name: (tmp_path / name).read_bytes() for name in again.files()}


@pytest.mark.parametrize("text", GEMMA)
def test_gemma_gives_the_ids_of_transformers(gemma: Tokenizer, text: str) -> None:
    assert gemma.encode_special(text) == GEMMA[text]
    assert gemma.decode(GEMMA[text][1:]) == text


def test_gemma_is_as_its_file_says(gemma: Tokenizer) -> None:
    assert (gemma.bos_id, gemma.eos_ids, gemma.pad_id, gemma.vocab_size) == (2, (1,), 0, 262144)
    assert gemma.chat is None
    assert gemma.pieces([2, 818, 13272, 107, 480, 138]) == ["<bos>", "The", "·keys", "⏎", "<0xF2>", "··"]
    assert not any(map(gemma.is_special, gemma.encode("<start_of_turn>user <unused7> <eos><0x0A>", bos=False)))


def write_gguf(path: Path, metadata: dict[str, Any]) -> None:
    """A Llama that is all vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"):
        writer.add_uint32(f"llama.{key}", 4)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        else:
            (writer.add_string if isinstance(value, str) else writer.add_uint32)(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("sentencepiece_gguf", {}),
        ("byte_level_gguf", {}),
        ("byte_level_gguf", {"tokenizer.ggml.pre": "qwen2"}),
        ("byte_level_gguf", {"tokenizer.ggml.pre": "gpt-4o", "tokenizer.ggml.add_bos_token": False}),
    ],
)
def test_ids_are_those_of_transformers_reading_the_same_file(
    kind: str, more: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    metadata = request.getfixturevalue(kind) | more
    write_gguf(tmp_path / "model.gguf", metadata)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    ours = Tokenizer.from_gguf(metadata)
    for text in [*CORPUS, *TEXTS, "x <turn>y<eos>", "<think>\n\n\n x"]:
        assert ours.encode_special(text) == theirs(text)["input_ids"], text


@pytest.mark.slow
def test_gemma_against_transformers(gemma: Tokenizer) -> None:
    """The same ids on texts drawn at random, and on everything that special tokens and white space can do."""
    path = shipped_file("gemma3-270m")
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    chance = random.Random(0)
    words = [
        "the",
        "Keys",
        "don't",
        "<eos>",
        "<b>",
        "\n\n",
        "  ",
        "\t",
        "über",
        "国家",
        "🙂",
        "x=1;",
        "▁",
        "<0x0A>",
        "é",
    ]
    texts = [" ".join(chance.choices(words, k=20)) for _ in range(200)]
    texts += ["".join(chance.choices("  \n\tabcxyz<>▁é.0123", k=50)) for _ in range(200)]
    texts += [bytes(chance.choices(range(256), k=60)).decode("utf-8", "replace") for _ in range(200)]
    for text in [*texts, *(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))]:
        assert gemma.encode_special(text) == theirs(text)["input_ids"], text
