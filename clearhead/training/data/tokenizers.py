"""Training a tokenizer, as a run needs it: what it makes is an ordinary `clearhead.inputs.tokenizer.Tokenizer`, and
its tokenizer.json is in every checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Core

from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.spelling import byte_alphabet
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.inputs.vocabulary import ROLES, Vocabulary, mark_ends

Kind = Literal["bpe", "unigram", "wordpiece", "bytes"]
END = "<|endoftext|>"
MARKS: dict[str, dict[str, str]] = {
    "bpe": {"bos_token": END, "eos_token": END, "pad_token": END},
    "unigram": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
    "wordpiece": {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    },
    "bytes": {"bos_token": END, "eos_token": END, "pad_token": END},
}
"""The tokens that have a role, where nothing else is asked for."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What kind of tokenizer, and of what size.

    "bpe" merges bytes (Sennrich 2016; Radford 2019), "unigram" keeps the likeliest pieces of bytes (Kudo 2018): every
    text comes back as it was. "wordpiece" is BERT's (Devlin 2018), whose unknown characters are lost. "bytes" is one
    token a byte, and learns nothing.
    """

    kind: Kind = "bpe"
    size: int = 4096
    """How many ids at most, the marks among them; "bytes" has 256 and its marks."""
    marks: tuple[tuple[str, str], ...] | None = None
    """The tokens with a role, by its name (bos_token, eos_token, pad_token, ...); None is what is usual for the kind."""
    around: bool = True
    """Whether a text is given its marks: bos before it, or [CLS] and [SEP] around it."""
    lowercase: bool = False
    """All text is made small, and accents are dropped (wordpiece)."""

    def __post_init__(self) -> None:
        if self.kind not in MARKS:
            raise UsageError(f"there is no kind of tokenizer {self.kind!r}; there are {', '.join(MARKS)}")
        unknown = [role for role in self.names if role not in ROLES]
        if unknown:
            raise UsageError(f"there is no role {unknown[0]!r} for a token; there are {', '.join(ROLES)}")
        if self.lowercase and self.kind != "wordpiece":
            raise UsageError(
                f"lowercase is for wordpiece; a tokenizer of kind {self.kind} gives every text back as it was"
            )
        least = {"wordpiece": 0, "bytes": 0}.get(self.kind, 256) + len(set(self.names.values()))
        if self.size <= least and self.kind != "bytes":
            raise UsageError(
                f"a tokenizer of kind {self.kind} with its marks has more than {least} ids; size is {self.size}"
            )

    @property
    def names(self) -> dict[str, str]:
        """The tokens that have a role."""
        return dict(MARKS[self.kind] if self.marks is None else self.marks)


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig | None = None) -> Tokenizer:
    """A tokenizer of these texts. It may have fewer ids than asked for, where the texts give no more.

    Raises:
        ClearheadError: there is no text.
    """
    config = config or TokenizerConfig()
    names = config.names
    core, trainer = _parts(config, names)
    if trainer is not None:
        counted = _Counted(texts)
        try:
            core.train_from_iterator(counted, trainer)
        except ClearheadError:
            raise
        except Exception as problem:  # the package raises bare Exceptions
            raise ClearheadError(
                f"a tokenizer of kind {config.kind} and {config.size} ids can't be trained: {problem}"
            ) from problem
        if not counted.characters:
            raise ClearheadError("there is no text to train a tokenizer on")
    core.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in dict.fromkeys(names.values())]
    )
    if config.around:
        _mark(core, names)
    return wrap(core, names, where=f"a {config.kind} tokenizer trained here")


class _Counted:
    """Texts as they pass, and how many characters they had."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = iter(texts)
        self.characters = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> str:
        text = next(self.texts)
        self.characters += len(text)
        return text


def _parts(config: TokenizerConfig, names: Mapping[str, str]) -> tuple[Core, Any]:
    """The tokenizer before it is trained, and what trains it."""
    marks = [AddedToken(token, special=True, normalized=False) for token in dict.fromkeys(names.values())]
    common: dict[str, Any] = {"vocab_size": config.size, "special_tokens": marks, "show_progress": False}
    if config.kind == "wordpiece":
        unknown = names.get("unk_token", "[UNK]")
        core = Core(models.WordPiece(unk_token=unknown))
        core.normalizer = normalizers.BertNormalizer(lowercase=config.lowercase)
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        core.decoder = decoders.WordPiece()
        return core, trainers.WordPieceTrainer(**common)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if config.kind == "unigram":
        core = Core(models.Unigram())
        trainer = trainers.UnigramTrainer(initial_alphabet=alphabet, **common)
    elif config.kind == "bpe":
        core = Core(models.BPE())
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **common)
    else:
        # The id of a byte is its value.
        core, trainer = Core(models.BPE(byte_alphabet(), [])), None
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core, trainer


def _mark(core: Core, names: Mapping[str, str]) -> None:
    """Let it put its marks around a text."""
    first, last = names.get("cls_token"), names.get("sep_token")
    if first is not None and last is not None:
        core.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {last} $B:1 {last}:1",
            special_tokens=[(token, core.token_to_id(token)) for token in dict.fromkeys((first, last))],
        )
    elif "bos_token" in names:
        mark_ends(core, names["bos_token"], None)


def wrap(core: Core, names: Mapping[str, str], where: str) -> Tokenizer:
    """A tokenizer of the `tokenizers` package as clearhead's, with the files that hold it.

    names: the tokens that have a role (see clearhead.inputs.vocabulary.ROLES).
    """
    missing = [token for token in names.values() if core.token_to_id(token) is None]
    if missing:
        raise ClearheadError(f"the tokenizer has no token {missing[0]!r}")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    files = {
        "tokenizer.json": core.to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    ends = [core.token_to_id(names["eos_token"])] if "eos_token" in names else []
    return Tokenizer(
        Vocabulary(core=core, where=where, names=dict(names), eos_ids=tuple(ends), files=lambda: dict(files))
    )
