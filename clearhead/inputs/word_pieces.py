"""A tokenizer from vocab.txt, one token a line: BERT's word pieces, or one letter a token as for proteins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Core

from clearhead.errors import ClearheadError

SPELLINGS = {
    "cls_token": ("[CLS]", "<cls>"),
    "sep_token": ("[SEP]", "<eos>"),
    "eos_token": ("<eos>",),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}
"""How the tokens that have a role are spelled where no file says it."""


def read_word_pieces(path: Path, config: Mapping[str, Any]) -> tuple[Core, dict[str, str]]:
    """The tokenizer, and the tokens that have a role. Raises ClearheadError."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as problem:
        raise ClearheadError(f"{path} can't be read: {problem}. Download it again.") from problem
    vocabulary = {line.removesuffix("\r"): i for i, line in enumerate(lines)}
    names = {
        role: next(word for word in words if word in vocabulary)
        for role, words in SPELLINGS.items()
        if any(word in vocabulary for word in words)
    }
    if "unk_token" not in names:
        raise ClearheadError(f"{path} has neither [UNK] nor <unk>, so it can't be told what stands for unknown words")
    ordinary = [token for token in vocabulary if not _is_mark(token)]
    core = _letters(vocabulary, names) if max(map(len, ordinary)) == 1 else _pieces(vocabulary, names, ordinary, config)
    first, last = names.get("cls_token"), names.get("sep_token")
    if first is not None and last is not None:
        core.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {last} $B:1 {last}:1",
            special_tokens=[(token, vocabulary[token]) for token in (first, last)],
        )
    return core, names


def _letters(vocabulary: dict[str, int], names: Mapping[str, str]) -> Core:
    """Every letter is a token, and a run of others one unknown; white space is nothing."""
    core = Core(models.WordLevel(vocabulary, unk_token=names["unk_token"]))
    letters = "".join(re.escape(token) for token in vocabulary if len(token) == 1)
    each = pre_tokenizers.Split(Regex(f"[{letters}]"), behavior="isolated")
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), each])
    core.decoder = decoders.Fuse()
    return core


def _pieces(
    vocabulary: dict[str, int], names: Mapping[str, str], ordinary: list[str], config: Mapping[str, Any]
) -> Core:
    core = Core(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    # Where nothing says it: a vocabulary with capitals was made of text that has them.
    uncased = all(token == token.lower() for token in ordinary)
    core.normalizer = normalizers.BertNormalizer(
        lowercase=config.get("do_lower_case", uncased),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece("##")
    return core


def _is_mark(token: str) -> bool:
    return len(token) > 2 and token[0] + token[-1] in ("[]", "<>")
