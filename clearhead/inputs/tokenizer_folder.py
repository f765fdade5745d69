"""A tokenizer from a folder in the Hub's layout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Core

from clearhead.errors import ClearheadError
from clearhead.inputs.gguf_vocabulary import llama_cpp_names, read_gguf
from clearhead.inputs.sentencepiece_file import read_sentencepiece
from clearhead.inputs.vocabulary import ROLES, Vocabulary, mark_ends
from clearhead.inputs.word_pieces import read_word_pieces

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "vocab.txt",
)
REMEDY = (
    "Put the model's tokenizer.json there; where there is none, "
    '`transformers.AutoTokenizer.from_pretrained("...").save_pretrained(folder)` writes one.'
)
# Which way of splitting text a folder's vocab.json and merges.txt were made for, by llama.cpp's names.
SPLITS = {"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "deepseek-r1-qwen"}


def read_folder(folder: Path) -> Vocabulary:
    """Raises ClearheadError naming the file when there is no tokenizer, or one that can't be read."""
    config = read_json(folder / "tokenizer_config.json")
    roles = read_json(folder / "special_tokens_map.json") | config
    names = {role: text for role in ROLES if (text := _content(roles.get(role))) is not None}
    if (folder / "tokenizer.json").is_file():
        core = _read_core(folder / "tokenizer.json")
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        core = _read_byte_level(folder, config)
        if core.token_to_id("<|endoftext|>") is not None:
            names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>") | names
    elif (folder / "tokenizer.model").is_file():
        made = read_gguf(read_sentencepiece(folder / "tokenizer.model"), str(folder / "tokenizer.model"))
        core, names = made.core, dict(made.names) | names
    elif (folder / "vocab.txt").is_file():
        core, usual = read_word_pieces(folder / "vocab.txt", config)
        names = usual | names
    else:
        raise ClearheadError(
            f"{folder} has no tokenizer: no tokenizer.json, vocab.json, vocab.txt or tokenizer.model. {REMEDY}"
        )
    _add_missing(core, config, read_json(folder / "added_tokens.json"), names)
    _mark_as_said(core, config, names)
    return Vocabulary(
        core=core,
        where=str(folder),
        names=names,
        eos_ids=_eos_ids(folder, core, names),
        templates=_templates(folder, config),
        files=lambda: {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()},
    )


def read_json(path: Path) -> dict[str, Any]:
    """A file with a JSON object; {} if there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as problem:
        raise ClearheadError(f"{path} can't be read: {problem}. Download it again.") from problem
    if not isinstance(value, dict):
        raise ClearheadError(f"{path} should hold an object, and holds a {type(value).__name__}. Download it again.")
    return value


def _read_core(path: Path) -> Core:
    try:
        return Core.from_file(str(path))
    except Exception as problem:  # the package raises bare Exceptions
        raise ClearheadError(f"{path} can't be read as a tokenizer: {problem}. Download it again.") from problem


def _read_byte_level(folder: Path, config: Mapping[str, Any]) -> Core:
    """GPT-2's files, and those of its kind."""
    made_by = str(config.get("tokenizer_class", "GPT2Tokenizer")).removesuffix("Fast")
    if made_by not in SPLITS:
        raise ClearheadError(
            f"{folder} has vocab.json and merges.txt of a {made_by}; from these two clearhead can build "
            f"{' and '.join(SPLITS)}. {REMEDY}"
        )
    try:
        model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    except Exception as problem:  # the package raises bare Exceptions
        raise ClearheadError(f"{folder}: vocab.json and merges.txt can't be read: {problem}. {REMEDY}") from problem
    rule = next(rule for rule in llama_cpp_names()["pre_tokenizers"] if SPLITS[made_by] in rule["names"])
    core = Core(model)
    first = bool(config.get("add_prefix_space", False))
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=first, use_regex=rule["split"] is None)]
    if rule["split"] is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(rule["split"]), behavior="isolated"))
    core.pre_tokenizer = pre_tokenizers.Sequence(steps)
    core.decoder = decoders.ByteLevel()
    return core


def _content(token: Any) -> str | None:
    """A token in a config: its text, or a record with it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _add_missing(core: Core, config: Mapping[str, Any], extra: Mapping[str, int], names: Mapping[str, str]) -> None:
    """Tokens that the configs name and the tokenizer does not know as added yet, in order of their ids."""
    known = {token.content for token in core.get_added_tokens_decoder().values()}
    wanted = {int(i): _added(record) for i, record in config.get("added_tokens_decoder", {}).items()}
    wanted |= {i: AddedToken(text, special=False) for text, i in extra.items() if i not in wanted}
    tokens = [token for _, token in sorted(wanted.items()) if token.content not in known]
    known |= {token.content for token in tokens}
    more = [*names.values(), *_listed(config)]
    core.add_tokens(tokens + [AddedToken(text, special=True) for text in dict.fromkeys(more) if text not in known])
    for i, token in wanted.items():
        if core.token_to_id(token.content) != i:
            raise ClearheadError(
                f"{token.content!r} should be the token {i}, and is {core.token_to_id(token.content)}: "
                f"tokenizer_config.json or added_tokens.json does not belong to this vocabulary. {REMEDY}"
            )


def _mark_as_said(core: Core, config: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Where the config says what goes around a text (`add_bos_token`, `add_eos_token`) and tokenizer.json does
    otherwise, the config goes: it is what people edit. (`transformers` 5 then goes by tokenizer.json.)"""
    bos, eos = names.get("bos_token"), names.get("eos_token")
    around = core.encode("").tokens
    marks = (bos is not None and bos in around[:1], eos is not None and eos in around[1 if bos == eos else 0 :])
    said = (config.get("add_bos_token"), config.get("add_eos_token"))
    wanted = [bool(mark if say is None else say) for mark, say in zip(marks, said, strict=True)]
    if wanted != list(marks):
        mark_ends(core, bos if wanted[0] else None, eos if wanted[1] else None)


def _added(record: Mapping[str, Any]) -> AddedToken:
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(record["content"], **{flag: bool(record[flag]) for flag in flags if flag in record})


def _listed(config: Mapping[str, Any]) -> Iterable[str]:
    for key in ("additional_special_tokens", "extra_special_tokens"):
        tokens = config.get(key) or ()
        for token in tokens.values() if isinstance(tokens, dict) else tokens:
            if (text := _content(token)) is not None:
                yield text


def _eos_ids(folder: Path, core: Core, names: Mapping[str, str]) -> tuple[int, ...]:
    """What ends a text: the generation config's ids (or the model config's), and the tokenizer's own."""
    said = read_json(folder / "generation_config.json").get("eos_token_id")
    if said is None:
        said = read_json(folder / "config.json").get("eos_token_id")
    ids = [] if said is None else said if isinstance(said, list) else [said]
    if "eos_token" in names and (own := core.token_to_id(names["eos_token"])) is not None:
        ids = [*ids, own]
    return tuple(dict.fromkeys(ids))


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """By name; a file of its own goes before what the config says."""
    given = config.get("chat_template") or read_json(folder / "chat_template.json").get("chat_template")
    found = {}
    if isinstance(given, str):
        found["default"] = given
    elif isinstance(given, dict):
        found |= given
    elif given:
        found |= {entry["name"]: entry["template"] for entry in given}
    path = folder / "chat_template.jinja"
    if path.is_file():
        found["default"] = path.read_text(encoding="utf-8")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = path.read_text(encoding="utf-8")
    return found
