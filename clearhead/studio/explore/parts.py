"""What a model is made of and what can be asked of it: told by its config and its taps, never by its name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from clearhead.config import AttentionConfig, LatentAttentionConfig, TransformerConfig, TwoTowersConfig
from clearhead.lens.aliases import Alias
from clearhead.lens.places import Progress, site
from clearhead.model.stack import Stack
from clearhead.studio.explore.given import LAYER, hides_words, stacks_of, wants
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.samples import OUTLINES, PICTURES, SOUNDS
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

ModelId = Annotated[str, Field(min_length=1, max_length=500)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Address = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[int, Field(ge=0, le=1_000_000)]

TEXT = "The captain of the old ship looked out to sea, and the crew looked at the captain of the old"
"""It begins to say again what it said: heads that look for that show themselves."""
MASKED = "The captain of the ship looked out to [MASK], and the crew looked at the captain."
_known: KeptResults[dict[str, Any]] = KeptResults(32)
NAMES = {"mixer": "self-attention", "cross": "cross-attention"}


@operation("explore.model")
def explore_model(studio: Studio, *, model: ModelId = "clear-gpt") -> Answer | Iterator[Answer]:
    """What the page has to know of a model before anything runs."""

    def told() -> Answer:
        return Answer(data=_known.of(studio.models, model, make=lambda found: record_of(found, model)))

    return promptly(_known.get(_known.key(studio.models, model)) is not None, told)


def record_of(model: Transformer, model_id: str) -> dict[str, Any]:
    """The model in words and numbers."""
    known = catalogue(model)
    kinds = wants(model)
    attention = attention_of(model)
    ends = {address.rpartition(".")[2] for address in known}
    config: TransformerConfig | TwoTowersConfig = model.config
    whole = config if isinstance(config, TransformerConfig) else None
    scores_words = whole is not None and whole.heads.tokens is not None
    writes = scores_words and config.decoder is not None
    main = kinds[next(iter(kinds))]
    op = next((block.mixer.op for block in _blocks(model) if hasattr(block.mixer.op, "n_heads")), None)
    return {
        "id": model_id,
        "kind": _kind(config),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "layers": sum(len(stack.layers) for stack in stacks_of(model).values()),
        "heads": getattr(op, "n_heads", 0),
        "kv_heads": getattr(op, "n_kv_heads", getattr(op, "n_heads", 0)),
        "d_model": None if whole is None else whole.d_model,
        "d_head": getattr(op, "d_head", None),
        "vocab": None if main != "text" else config.vocab_size,
        "context": None if whole is None else whole.context,
        "dtype": str(model.dtype).removeprefix("torch."),
        "tokenizer": model.tokenizer is not None,
        "chat": model.tokenizer is not None and model.tokenizer.chat is not None,
        "reads": {
            "text": any(path != "encoder" and kind == "text" for path, kind in kinds.items()),
            "source": kinds.get("encoder") == "text" and len(kinds) > 1,
            "picture": "picture" in kinds.values(),
            "sound": "sound" in kinds.values(),
        },
        "writes_target": "encoder" in kinds and len(kinds) > 1,
        "samples": {
            "pictures": list(PICTURES) if "picture" in kinds.values() else [],
            "sounds": list(SOUNDS) if "sound" in kinds.values() else [],
        },
        "defaults": _defaults(model, kinds),
        "attention": attention,
        "can": {
            "attention": bool(attention),
            "cross": any(kind["cross"] for kind in attention),
            "predict": scores_words,
            "lens": scores_words,
            "ablate": bool(known),
            "patch": scores_words,
            "generate": writes,
            "heads": bool(attention) and main == "text",
            "pictures": "picture" in kinds.values(),
            "experts": "router_logits" in ends,
            "states": bool({"state", "hidden"} & ends),
        },
        "experts": sorted((a for a in known if a.endswith(".router_logits")), key=_order(known)),
        "states": [a for a in known if a.rpartition(".")[2] in ("state", "hidden", "cell", "delta", "gates")],
        "alignments": [a for a in known if a.endswith(".alignment")],
    }


def _order(known: dict[str, str]) -> Any:
    places = {address: place for place, address in enumerate(known)}
    return places.__getitem__


def attention_of(model: Transformer) -> list[dict[str, Any]]:
    """The kinds of attention, each a family of layers that differ by number alone; the one that gives the output first.

    `at` is their address with a star ("layers.*.mixer"), `queries` and `keys` the stacks whose slots they count.
    """
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for address in catalogue(model):
        match = LAYER.fullmatch(address)
        if match is not None and match["after"].endswith(".pattern"):
            at = f"{match['before']}*{match['after'].removesuffix('.pattern')}"
            found[at].append((int(match["layer"]), address.removesuffix(".pattern")))
    letters = catalogue(model)
    kinds = []
    for at, layers in found.items():
        place = site(model, Alias(f"{layers[0][1]}.pattern"), letters[f"{layers[0][1]}.pattern"], Progress())
        before = at.partition("layers.")[0]
        kinds.append(
            {
                "at": at,
                "name": _name(model, at),
                "cross": place.stack("T") != place.stack("S"),
                "queries": place.stack("T"),
                "keys": place.stack("S"),
                "layers": [_attention(model, number, path) for number, path in layers],
                "stack": before.rstrip("."),
            }
        )
    return kinds


def _name(model: Transformer, at: str) -> str:
    """What a kind of attention is called."""
    before, _, after = at.partition("layers.*.")
    name = NAMES.get(after, after)
    stack = before.rstrip(".")
    several = len(stacks_of(model)) > 1
    if not several or after == "cross":
        return name
    return f"{stack or 'decoder'} {name}"


def _attention(model: Transformer, number: int, path: str) -> dict[str, Any]:
    config: AttentionConfig | LatentAttentionConfig = model.get_submodule(path).config  # type: ignore[assignment]
    cross = path.endswith(".cross")
    return {
        "layer": number,
        "at": path,
        "heads": config.n_heads,
        "kv_heads": (kv_heads := getattr(config, "n_kv_heads", config.n_heads)),
        "heads_a_group": config.n_heads // kv_heads,
        # Cross-attention sees the whole source, whatever its config says of masks.
        "mask": "full" if cross else config.mask.kind,
        "window": None if cross else config.mask.window,
    }


def _blocks(model: Transformer) -> list[Any]:
    return [block.config for stack in stacks_of(model).values() for block in stack.layers]


def _kind(config: TransformerConfig | TwoTowersConfig) -> str:
    if isinstance(config, TwoTowersConfig):
        return "two towers"
    return "-".join(name for name in ("encoder", "decoder") if getattr(config, name) is not None)


def _defaults(model: Transformer, kinds: dict[str, str]) -> dict[str, str | None]:
    """What to begin with."""
    main, source = kinds[next(iter(kinds))], kinds.get("encoder") if len(kinds) > 1 else None
    paired = source is not None
    text = TEXT if model.tokenizer is not None else "1 2 3 4 5 1 2 3"
    if hides_words(model) and model.tokenizer is not None:
        text = MASKED.replace("[MASK]", model.tokenizer.vocabulary.names["mask_token"])
    if "picture" in kinds.values() and main == "text":
        text = "a house under the sun"
    return {
        "text": "" if paired else text if main == "text" else None,
        "source": _source(model) if source == "text" else None,
        "picture": _first_picture(model) if "picture" in kinds.values() else None,
        "sound": SOUNDS[-1] if "sound" in kinds.values() else None,
    }


def _source(model: Transformer) -> str:
    """A source that the model may have been taught with: what it can spell without an unknown word."""
    for text in ("de: forty-seven", "The keys to the cabinet are on the table."):
        if model.tokenizer is not None and model.tokenizer.unk_id not in model.tokenizer.encode(text):
            return text
    return TEXT


def _first_picture(model: Transformer) -> str:
    """Of clothes where the model sees grey, else of colours."""
    fronts = [stack.embed.config.front for stack in stacks_of(model).values() if isinstance(stack, Stack)]
    grey = any(getattr(front, "channels", 3) == 1 for front in fronts)
    return next(iter(OUTLINES)) if grey else PICTURES[-1]
