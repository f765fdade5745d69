"""A model that costs nothing, so that the command line is tested by itself."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import clearhead


@dataclass
class Calls:
    """What the verbs asked of the library."""

    loaded: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    tokenizer: Any = None
    kept: Any = field(default_factory=lambda: SimpleNamespace(back_to=lambda tokens: tokens[1:]))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Stand-ins for load, generate and stream, which note what they are asked for."""
    seen = Calls()

    def load(source: str, **how: Any) -> Any:
        seen.loaded.append({"source": source, **how})
        return SimpleNamespace(tokenizer=seen.tokenizer)

    class Pieces:
        result = SimpleNamespace(text=" one two", state=seen.kept)

        def __iter__(self) -> Iterator[str]:
            return iter((" one", " two"))

    def stream(model: Any, prompt: Any, **how: Any) -> Pieces:
        seen.asked.append((prompt, how))
        return Pieces()

    def generate(model: Any, prompt: Any, **how: Any) -> Any:
        seen.asked.append((prompt, how))
        return SimpleNamespace(
            text=" one two", tokens=[3, 4], finish_reason="length", logprobs=[-0.5, -0.25], prompt_tokens=[1, 2]
        )

    for stand_in in (load, stream, generate):
        monkeypatch.setitem(vars(clearhead), stand_in.__name__, stand_in)
    return seen


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Call it with what standard input should hold."""

    def hold(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return hold


TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
CONFIG = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 256,
    "eos_token_id": 257,
}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers whose tokens are bytes, as a folder in the Hub's layout."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from clearhead.families import family_of
    from clearhead.model.transformer import Transformer

    folder = tmp_path_factory.mktemp("models") / "tiny"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(name, special=True) for name in ("<bos>", "<eos>")])
    torch.manual_seed(1)
    family = "llama"
    config = family_of({"model_type": family}, "here").read(CONFIG, "here")
    clearhead.save(Transformer(config), folder, family=family)
    core.save(str(folder / "tokenizer.json"))
    about = {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder
