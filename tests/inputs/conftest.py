"""Small tokenizers of each kind, trained here, and the real one of Gemma 3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Core

from clearhead.checkpoints import open_checkpoint
from clearhead.inputs.tokenizer import Tokenizer
from tests.inputs.small_tokenizers import CORPUS, GGUF, SPECIAL, TEMPLATE, as_gguf, train_sentencepiece, write_folder


@pytest.fixture(scope="session")
def byte_level() -> Core:
    """GPT-2's kind: 320 tokens, of which SPECIAL are the last."""
    core = Core(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=316, initial_alphabet=alphabet, show_progress=False)
    )
    core.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return core


@pytest.fixture(scope="session")
def byte_level_gguf(byte_level: Core) -> GGUF:
    """The same, as a GGUF writes it."""
    model = json.loads(byte_level.to_str())["model"]
    tokens = [byte_level.id_to_token(i) for i in range(byte_level.get_vocab_size())]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": tokens.index("<bos>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<eos>"),
        "tokenizer.ggml.padding_token_id": tokens.index("<pad>"),
        "tokenizer.ggml.eot_token_id": tokens.index("<turn>"),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": TEMPLATE,
    }


@pytest.fixture(scope="session")
def sentencepiece_model() -> bytes:
    return train_sentencepiece()


@pytest.fixture(scope="session")
def sentencepiece_gguf(sentencepiece_model: bytes) -> GGUF:
    """Llama's kind: a space is put before the text."""
    return as_gguf(sentencepiece_model)


@pytest.fixture(params=["byte level", "byte level GGUF", "sentencepiece", "sentencepiece, saved"])
def any_tokenizer(
    request: pytest.FixtureRequest, byte_level: Core, byte_level_gguf: GGUF, sentencepiece_gguf: GGUF, tmp_path: Path
) -> Tokenizer:
    """Each kind, with SPECIAL, TEMPLATE, and a BOS before every text."""

    def saved() -> Tokenizer:
        for name, data in Tokenizer.from_gguf(sentencepiece_gguf).files().items():
            (tmp_path / name).write_bytes(data)
        return Tokenizer.from_folder(tmp_path)

    made: dict[str, Callable[[], Tokenizer]] = {
        "byte level": lambda: Tokenizer.from_folder(
            write_folder(tmp_path, byte_level, add_bos_token=True, chat_template=TEMPLATE)
        ),
        "byte level GGUF": lambda: Tokenizer.from_gguf(byte_level_gguf),
        "sentencepiece": lambda: Tokenizer.from_gguf(sentencepiece_gguf),
        "sentencepiece, saved": saved,
    }
    return made[request.param]()


@pytest.fixture(scope="session")
def gemma() -> Tokenizer:
    with open_checkpoint("gemma3-270m") as checkpoint:
        return Tokenizer.from_gguf(checkpoint.config, checkpoint.where)
