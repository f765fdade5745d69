"""Training a tokenizer, as a run needs it: what it makes is an ordinary `clearhead.inputs.tokenizer.Tokenizer`, and
its tokenizer.json is in every checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Core

from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.spelling import byte_alphabet
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.inputs.vocabulary import ROLES, Vocabulary, mark_ends

Kind = Literal["bpe", "unigram", "wordpiece", "bytes", "pieces"]
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
    "pieces": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
}
"""The tokens that have a role, where nothing else is asked for."""
MOST_LETTERS = 1000
"""So many letters, the most frequent, get word pieces of their own."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What kind of tokenizer, and of what size.

    "bpe" merges bytes (Sennrich 2016; Radford 2019), "unigram" keeps the likeliest pieces of bytes (Kudo 2018): every
    text comes back as it was. "wordpiece" is BERT's (Devlin 2018), whose unknown characters are lost. "bytes" is one
    token a byte, and learns nothing; neither does "pieces", which has those that are given and nothing else. The same
    texts give the same tokenizer; a "unigram" may differ in the last digits of its scores, which its trainer sums up
    in no fixed order.
    """

    kind: Kind = "bpe"
    size: int = 4096
    """How many ids at most, the marks among them; "bytes" has 256 and its marks."""
    marks: tuple[tuple[str, str], ...] | None = None
    """The tokens with a role, by its name (bos_token, eos_token, pad_token, ...); None is what the kind usually has."""
    around: bool = True
    """Whether a text is given its marks: bos before it, or [CLS] and [SEP] around it."""
    lowercase: bool = False
    """All text is made small, and accents are dropped (wordpiece)."""
    pieces: tuple[str, ...] = ()
    """Of "pieces": what words are made of. ## before one says that it stands inside a word. A word is white space to
    white space, cut into the longest piece that fits, and on; one that has other parts is unknown as a whole."""

    def __post_init__(self) -> None:
        if self.kind not in MARKS:
            raise UsageError(f"there is no kind of tokenizer {self.kind!r}; there are {', '.join(MARKS)}")
        unknown = [role for role in self.names if role not in ROLES]
        if unknown:
            raise UsageError(f"there is no role {unknown[0]!r} for a token; there are {', '.join(ROLES)}")
        if self.lowercase and self.kind != "wordpiece":
            raise UsageError(f"lowercase is for wordpiece; a {self.kind} tokenizer gives every text back as it was")
        if bool(self.pieces) != (self.kind == "pieces"):
            raise UsageError(f"a {self.kind} tokenizer is given {len(self.pieces)} pieces; they are for kind pieces")
        least = {"wordpiece": 0, "bytes": 0, "pieces": 0}.get(self.kind, 256) + len(set(self.names.values()))
        if self.size <= least and self.kind not in ("bytes", "pieces"):
            raise UsageError(f"a {self.kind} tokenizer with its marks has more than {least} ids; size is {self.size}")

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
    counted = _Counted(texts)
    try:
        if config.kind == "wordpiece":
            core = _train_pieces(core, counted, config, names)
        elif trainer is not None:
            core.train_from_iterator(counted, trainer)
    except ClearheadError:
        raise
    except Exception as problem:  # the package raises bare Exceptions
        raise ClearheadError(f"a {config.kind} tokenizer of {config.size} ids can't be trained: {problem}") from problem
    if config.kind not in ("bytes", "pieces") and not counted.characters:
        raise ClearheadError("there is no text to train a tokenizer on")
    core.add_special_tokens(_special(names))
    if config.around:
        _mark(core, names, config.kind)
    return wrap(core, names, where=f"a {config.kind} tokenizer trained here")


def _special(names: Mapping[str, str]) -> list[AddedToken]:
    return [AddedToken(token, special=True, normalized=False) for token in dict.fromkeys(names.values())]


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
    common: dict[str, Any] = {
        "vocab_size": config.size,
        "special_tokens": _special(names),
        "show_progress": False,
    }
    if config.kind == "wordpiece":
        unknown = names.get("unk_token", "[UNK]")
        core = Core(models.WordPiece(unk_token=unknown))
        core.normalizer = normalizers.BertNormalizer(lowercase=config.lowercase)
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        core.decoder = decoders.WordPiece()
        return core, None
    if config.kind == "pieces":
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*names.values(), *config.pieces]))}
        core = Core(models.WordPiece(vocabulary, unk_token=names.get("unk_token", "<unk>")))
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        core.decoder = decoders.WordPiece(cleanup=False)
        return core, None
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer: Any = None
    if config.kind == "unigram":
        core = Core(models.Unigram())
        trainer = trainers.UnigramTrainer(initial_alphabet=alphabet, **common)
    elif config.kind == "bpe":
        core = Core(models.BPE())
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **common)
    else:
        # The id of a byte is its value.
        core = Core(models.BPE(byte_alphabet(), []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core, trainer


def _train_pieces(core: Core, texts: Iterable[str], config: TokenizerConfig, names: Mapping[str, str]) -> Core:
    """`core` with word pieces of these texts.

    The package's trainer numbers the letters inside words as it meets them, in no fixed order, and of pairs that are
    equally frequent takes the one with the lower numbers. Here the letters have their numbers before.
    """
    words: Counter[str] = Counter()
    for text in texts:
        normal = core.normalizer.normalize_str(text)
        words.update(word for word, _ in core.pre_tokenizer.pre_tokenize_str(normal))
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    alphabet = sorted(sorted(letters, key=lambda letter: (-letters[letter], letter))[:MOST_LETTERS])
    inside = [AddedToken(f"##{letter}", normalized=False) for letter in alphabet]
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.size,
        special_tokens=[*_special(names), *inside],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    core.train_from_iterator((" ".join([word] * count) for word, count in sorted(words.items())), trainer)
    # The pieces of one letter are no marks.
    made = json.loads(core.to_str())
    made["added_tokens"] = [token for token in made["added_tokens"] if token["content"] in set(names.values())]
    return Core.from_str(json.dumps(made))


def _mark(core: Core, names: Mapping[str, str], kind: Kind) -> None:
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
    elif kind == "pieces" and "eos_token" in names:
        mark_ends(core, None, names["eos_token"])


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
    end = core.token_to_id(names["eos_token"]) if "eos_token" in names else None
    return Tokenizer(
        Vocabulary(
            core=core, where=where, names=dict(names), eos_ids=() if end is None else (end,), files=lambda: dict(files)
        )
    )
