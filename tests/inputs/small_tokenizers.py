"""Texts, and small tokenizers as files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer as Core

CORPUS = [
    "The keys to the cabinet are on the table. The trophy did not fit in the suitcase because it was too big.",
    "She sells sea shells by the sea shore; the shells she sells are surely seashells, so if she sells shells",
    "def attend(q, k, v):\n    return softmax(q @ k.T / sqrt(d)) @ v\n\n\nclass Layer:\n\tpass  # 123 4567",
    "Größe über Straße, naïve café. 日本語 и русский текст.  Two  spaces,   three.",
]
SPECIAL = ["<bos>", "<eos>", "<pad>", "<turn>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<turn>{{ m['role'] }}\n{{ m['content'] | trim }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
TEXTS = [
    "The keys to the cabinet",
    "",
    " ",
    " leading, trailing ",
    "a  b   c\n\n\td\r\n",
    "She sells 12345 shells: x=1;\n\tdef f(x): pass",
    "é 日本語 👩‍💻 🇨🇭 \u200b\ufeff \x00\x1b ñandú",
    "don't WON'T I'll",
    "<tur n> < bos >",
]

GGUF = dict[str, Any]


def write_folder(folder: Path, core: Core, **config: Any) -> Path:
    """A tokenizer folder in the Hub's layout."""
    folder.mkdir(exist_ok=True)
    core.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | config))
    return folder


def train_sentencepiece(**options: Any) -> bytes:
    """A SentencePiece model as its file's bytes: BPE, bytes for unknown characters, spaces kept."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS for line in text.splitlines()),
        model_writer=model,
        minloglevel=2,
        **{
            "model_type": "bpe",
            "vocab_size": 430,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "character_coverage": 0.98,
            "bos_piece": "<bos>",
            "eos_piece": "<eos>",
            "pad_piece": "<pad>",
            "pad_id": 3,
            "control_symbols": ["<turn>"],
            "user_defined_symbols": ["<think>", "\n\n"],
        }
        | options,
    )
    return model.getvalue()


def as_gguf(model: bytes, **more: Any) -> GGUF:
    """A SentencePiece model's vocabulary, as llama.cpp's converter writes it."""
    proto = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(proto.vocab_size())
    kinds = ((proto.is_unknown, 2), (proto.is_control, 3), (proto.is_unused, 5), (proto.is_byte, 6))
    types = [next((kind for test, kind in kinds if test(i)), 1) for i in ids]
    for piece in ("<think>", "\n\n"):
        types[proto.piece_to_id(piece)] = 4
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [proto.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [proto.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": proto.bos_id(),
        "tokenizer.ggml.eos_token_id": proto.eos_id(),
        "tokenizer.ggml.unknown_token_id": proto.unk_id(),
        "tokenizer.ggml.padding_token_id": proto.pad_id(),
        "tokenizer.chat_template": TEMPLATE,
    } | {f"tokenizer.ggml.{key}": value for key, value in more.items()}
