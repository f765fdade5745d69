"""SentencePiece's own file, tokenizer.model, read as what a GGUF would hold of it.

It is a protocol buffer (sentencepiece_model.proto); the few fields that matter are read here, so that no further
package is needed. Only its BPE kind over unchanged text (Llama, Gemma, Mistral) can be rebuilt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.inputs.gguf_vocabulary import llama_cpp_names

PIECES, TRAINER, NORMALIZER = 1, 2, 3  # ModelProto
PIECE_TEXT, PIECE_SCORE, PIECE_TYPE = 1, 2, 3
MODEL_TYPE, UNK, BOS, EOS, PAD = 3, 40, 41, 42, 43  # TrainerSpec; the ids' defaults are 0, 1, 2 and none
CHARACTER_MAP, ADD_PREFIX, REMOVE_SPACES = 2, 3, 4  # NormalizerSpec
BPE = 2


def read_sentencepiece(path: Path) -> dict[str, Any]:
    """Metadata under a GGUF's names. Raises ClearheadError when the file is damaged, or of another kind."""
    data = path.read_bytes()
    tokens: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        for number, value in _fields(data):
            if number == PIECES:
                piece = dict(_fields(value))
                tokens.append(piece[PIECE_TEXT].decode())
                scores.append(struct.unpack("<f", piece[PIECE_SCORE])[0] if PIECE_SCORE in piece else 0.0)
                types.append(piece.get(PIECE_TYPE, 1))
            elif number == TRAINER:
                trainer = dict(_fields(value))
            elif number == NORMALIZER:
                normalizer = dict(_fields(value))
    except (IndexError, KeyError, ValueError, struct.error, AttributeError, TypeError) as problem:
        raise ClearheadError(f"{path} can't be read as a SentencePiece model. Download it again.") from problem
    changes = normalizer.get(CHARACTER_MAP, b"") != b"" or normalizer.get(REMOVE_SPACES, 1)
    if trainer.get(MODEL_TYPE, 1) != BPE or changes:
        raise ClearheadError(
            f"{path} is a SentencePiece model that is not BPE over unchanged text, the one kind clearhead rebuilds "
            "from this file. Put the model's tokenizer.json beside it."
        )
    ids = {
        "bos": trainer.get(BOS, 1),
        "eos": trainer.get(EOS, 2),
        "unknown": trainer.get(UNK, 0),
        "padding": trainer.get(PAD, -1),
    }
    found = {f"{role}_token_id": i for role, i in ids.items() if 0 <= i < len(tokens)}
    found |= {
        "model": llama_cpp_names()["kinds"]["sentencepiece"][0],
        "tokens": tokens,
        "scores": scores,
        "token_type": types,
        "add_space_prefix": bool(normalizer.get(ADD_PREFIX, 1)),
    }
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """A message's (field number, value): whole numbers as int, all else as bytes. Raises ValueError when cut short."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _number(data, at)
            yield key >> 3, value if value < 1 << 63 else value - (1 << 64)
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"wire type {kind}")
        length, at = _number(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if length > len(data) - at:
            raise ValueError(f"{length} bytes where {len(data) - at} are left")
        yield key >> 3, data[at : at + length]
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number and where it ends: 7 bits a byte, the lowest first."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than ten bytes")
