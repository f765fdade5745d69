"""What a tokenizer is made of, whichever file it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tokenizers import Tokenizer as Core
from tokenizers import processors

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A tokenizer of the `tokenizers` package, and what stands beside it in the files."""

    core: Core
    where: str
    """The file or folder, for messages."""
    names: Mapping[str, str]
    """The tokens that have a role: "bos_token" -> "<bos>". Some of ROLES."""
    eos_ids: tuple[int, ...]
    """The ids that end a text or a turn."""
    size: int | None = None
    """One more than the highest id, where that is known without counting."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Chat templates by name; a single one is "default"."""
    files: Callable[[], dict[str, bytes]]
    """The files a saved model carries, by name: made only when asked for."""


def mark_ends(core: Core, bos: str | None, eos: str | None) -> None:
    """Let `core` put `bos` before a text and `eos` after it; None puts nothing."""
    ids = {token: core.token_to_id(token) for token in (bos, eos) if token is not None}
    single = " ".join(part for part in (bos, "$A", eos) if part is not None)
    pair = " ".join(part for part in (bos, "$A", eos, bos and f"{bos}:1", "$B:1", eos and f"{eos}:1") if part)
    core.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))
