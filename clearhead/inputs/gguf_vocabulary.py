"""A GGUF file's own vocabulary, rebuilt as a tokenizer of the `tokenizers` package.

Two kinds. SentencePiece: scored tokens, a space written "▁", unknown characters as bytes "<0xE2>"; its merges follow
from the scores. Byte-level: text split by a regular expression that the metadata only names, bytes written as
printable characters, merges listed. Held to what `transformers` makes of the same file, with one exception: where
llama.cpp keeps a word whole that is a token (Llama 3), so do we.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Core

from clearhead.errors import ClearheadError
from clearhead.inputs.merges import derive_merges
from clearhead.inputs.vocabulary import Vocabulary, mark_ends

# ggml's token types.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
ROLE_KEYS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "sep_token": "seperator",  # sic
    "pad_token": "padding",
    "mask_token": "mask",
}
END_KEYS = ("eos", "eot", "eom")
BYTE_SPELLING = re.compile(r"<0x[0-9A-F]{2}>")
USE_A_FOLDER = "Load the model from a folder in the Hub's layout, with its tokenizer.json."


@cache
def llama_cpp_names() -> dict[str, Any]:
    """What llama.cpp's names mean; see the file."""
    table: dict[str, Any] = json.loads(
        (files("clearhead") / "assets" / "gguf_vocabularies.json").read_text(encoding="utf-8")
    )
    return table


def read_gguf(metadata: Mapping[str, Any], where: str) -> Vocabulary:
    """The vocabulary in a GGUF's metadata (names as in the file: "tokenizer.ggml.tokens", ...).

    Raises ClearheadError naming `where` if there is none, or one that can't be rebuilt.
    """
    found = _Metadata(metadata, where)
    kinds = llama_cpp_names()["kinds"]
    model = found.get("model")
    if model in kinds["sentencepiece"]:
        core, adds_bos = _sentencepiece(found), True
    elif model in kinds["byte_level"]:
        core, adds_bos = _byte_level(found)
    else:
        known = ", ".join(sorted(kinds["sentencepiece"] + kinds["byte_level"]))
        raise ClearheadError(
            f"{where}: its vocabulary is of the kind {model!r}; clearhead can rebuild {known}. {USE_A_FOLDER}"
        )
    _add_special(core, found)
    names = found.names
    bos = names.get("bos_token") if found.get("add_bos_token", adds_bos) else None
    eos = names.get("eos_token") if found.get("add_eos_token", False) else None
    mark_ends(core, bos, eos)
    templates = _templates(metadata)
    eos_ids = tuple(dict.fromkeys(i for key in END_KEYS if (i := found.token_id(key)) is not None))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bos is not None,
        "add_eos_token": eos is not None,
        "clean_up_tokenization_spaces": False,
    } | names
    return Vocabulary(
        core=core,
        where=where,
        names=names,
        eos_ids=eos_ids,
        size=len(found.tokens),
        templates=templates,
        files=lambda: _files(core, config, templates, eos_ids),
    )


class _Metadata:
    """The tokenizer's part of the metadata, checked."""

    def __init__(self, metadata: Mapping[str, Any], where: str) -> None:
        self.metadata = metadata
        self.where = where
        self.tokens: list[str] = list(self.get("tokens", ()))
        if not self.tokens:
            raise ClearheadError(f"{where} has no vocabulary (tokenizer.ggml.tokens). {USE_A_FOLDER}")
        self.names = {role: self.tokens[i] for role, key in ROLE_KEYS.items() if (i := self.token_id(key)) is not None}
        self.types = self._types()

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def token_id(self, role: str) -> int | None:
        i: int | None = self.get(f"{role}_token_id")
        if i is not None and not 0 <= i < len(self.tokens):
            raise ClearheadError(
                f"{self.where}: tokenizer.ggml.{role}_token_id is {i}, but the vocabulary has {len(self.tokens)} tokens"
            )
        return i

    def vocab(self) -> dict[str, int]:
        """From token to id; each stands there once."""
        ids = {token: i for i, token in enumerate(self.tokens)}
        if len(ids) != len(self.tokens):
            twice = next(token for i, token in enumerate(self.tokens) if ids[token] != i)
            raise ClearheadError(f"{self.where}: the token {twice!r} stands in the vocabulary twice. {USE_A_FOLDER}")
        return ids

    def one_each(self, key: str) -> Sequence[Any] | None:
        """A list with a value for each token, or None."""
        values: Sequence[Any] | None = self.get(key)
        if values is not None and len(values) != len(self.tokens):
            raise ClearheadError(
                f"{self.where}: tokenizer.ggml.{key} has {len(values)} values for {len(self.tokens)} tokens"
            )
        return values

    def _types(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        given = self.one_each("token_type")
        if given is not None:
            types = np.asarray(given, np.int64)
        else:  # old files: told by spelling
            types = np.array([BYTE if BYTE_SPELLING.fullmatch(t) else NORMAL for t in self.tokens], np.int64)
        special = set(self.names.values())
        for i in (self.tokens.index(token) for token in special):
            if types[i] == NORMAL:
                types[i] = CONTROL
        return types


def _sentencepiece(found: _Metadata) -> Core:
    """Merges by score. Tokens that the text is searched for beforehand take no part in them."""
    tokens, types = found.tokens, found.types
    given = found.one_each("scores")
    scores = -np.arange(len(tokens), dtype=np.float64) if given is None else np.array(given, np.float64)
    # Runs of spaces are stored as spaces, but stand in the text as "▁"; what the user defined goes before all scores.
    for i in np.flatnonzero(types == USER_DEFINED):
        if not tokens[i].strip(" "):
            tokens[i] = "▁" * len(tokens[i])
            types[i] = NORMAL
            scores[i] = 1e9 - i
    words = np.flatnonzero(types == NORMAL)
    merges = derive_merges([tokens[i] for i in words.tolist()], scores[words])
    prefix = bool(found.get("add_space_prefix", True))
    core = Core(
        models.BPE(
            vocab=found.vocab(),
            merges=merges,
            unk_token=found.names.get("unk_token"),
            fuse_unk=True,
            byte_fallback=bool((types == BYTE).any()),
        )
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        core.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
        steps.append(decoders.Strip(content=" ", left=1, right=0))
    else:
        core.normalizer = normalizers.Replace(" ", "▁")
    core.decoder = decoders.Sequence(steps)
    return core


def _byte_level(found: _Metadata) -> tuple[Core, bool]:
    """The tokenizer, and whether this kind begins a text with BOS where the file does not say."""
    pre = found.get("pre", "default")
    rules = llama_cpp_names()["pre_tokenizers"]
    rule = next((rule for rule in rules if pre in rule["names"]), None)
    if rule is None:
        known = ", ".join(sorted(name for rule in rules for name in rule["names"]))
        raise ClearheadError(
            f"{found.where}: its text is split by the rule {pre!r} (tokenizer.ggml.pre), which clearhead does not "
            f"know. It knows {known}. {USE_A_FOLDER}"
        )
    listed = found.get("merges")
    if listed is None:
        raise ClearheadError(f"{found.where} has a byte-level vocabulary but no tokenizer.ggml.merges. {USE_A_FOLDER}")
    try:
        model = models.BPE(
            vocab=found.vocab(),
            merges=[(left, right) for left, _, right in (merge.partition(" ") for merge in listed)],
            ignore_merges=rule["whole_words"],
        )
    except Exception as problem:  # the package raises bare Exceptions
        raise ClearheadError(f"{found.where}: tokenizer.ggml.merges don't fit its tokens: {problem}") from problem
    core = Core(model)
    if rule["split"] is None:
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(found.get("add_space_prefix", False)))
    else:
        split = pre_tokenizers.Split(Regex(rule["split"]), behavior="isolated")
        core.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    core.decoder = decoders.ByteLevel()
    return core, bool(rule["adds_bos"])


def _add_special(core: Core, found: _Metadata) -> None:
    """What the text is searched for before it is split: control tokens, and those the user defined."""
    for kinds, special in (((CONTROL, UNKNOWN), True), ((USER_DEFINED,), False)):
        chosen = np.flatnonzero(np.isin(found.types, kinds)).tolist()
        core.add_tokens([AddedToken(found.tokens[i], normalized=False, special=special) for i in chosen])


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    key = "tokenizer.chat_template"
    found = {"default": metadata[key]} if key in metadata else {}
    return found | {name[len(key) + 1 :]: text for name, text in metadata.items() if name.startswith(key + ".")}


def _files(
    core: Core, config: Mapping[str, Any], templates: Mapping[str, str], eos_ids: tuple[int, ...]
) -> dict[str, bytes]:
    """The Hub's layout: `transformers` and we ourselves read the same ids from it."""
    config = dict(config)
    if list(templates) == ["default"]:
        config["chat_template"] = templates["default"]
    elif templates:
        config["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    made = {"tokenizer.json": core.to_str().encode(), "tokenizer_config.json": _json(config)}
    if len(eos_ids) > 1:  # one end is said by the config; several only here
        made["generation_config.json"] = _json({"eos_token_id": list(eos_ids)})
    return made


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
