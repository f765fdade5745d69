"""What a family is: data. How its config file reads, how its weight file is named, both directions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from clearhead.config import TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.families.weights import Layout
from clearhead.model import kept_heads

MISSING = object()
PRUNED = "pruned_heads"
"""Which heads of each layer were cut off; their matrices are smaller than the config says."""

# Keys that any published config may carry and that say nothing about the numbers of a pass.
CARRIED = frozenset(
    "_name_or_path _model_name_or_path transformers_version architectures model_type dtype torch_dtype use_cache "
    "initializer_range classifier_dropout unk_token_id cls_token_id mask_token_id "
    "id2label label2id num_labels finetuning_task task_specific_params tokenizer_class prefix _commit_hash "
    "_attn_implementation _attn_implementation_autoset auto_map use_bfloat16 tf_legacy_loss sep_token_id "
    "decoder_start_token_id max_length min_length do_sample early_stopping num_beams num_beam_groups "
    "diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
    "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate "
    "forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens output_past output_hidden_states output_attentions return_dict problem_type".split()
)
# Keys that would change the numbers, and the value at which they do not.
NEUTRAL: dict[str, Any] = {
    "chunk_size_feed_forward": 0,
    "is_encoder_decoder": False,
    "is_decoder": False,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "tie_encoder_decoder": False,
    "torchscript": False,
    PRUNED: {},
    "pretraining_tp": 1,
    "attention_bias": False,
    "mlp_bias": False,
    "use_mrope": False,
    "quantization_config": None,
}


class Reader:
    """Hands out the keys of a config and remembers which, so that none is dropped in silence."""

    def __init__(self, raw: Mapping[str, Any], where: str, architecture: str = "") -> None:
        self.raw = dict(raw)
        self.where = where
        self.architecture = architecture
        """The published class that is to be built: which heads there are."""
        self.read: set[str] = set()
        self.assumed: dict[str, Any] = {}

    def assume(self, **values: Any) -> None:
        """Let keys that are absent mean these values: a family's own, where the words are shared with others."""
        self.assumed |= values

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `name`; where it is absent or null, what is assumed, or else `default`."""
        self.read.add(name)
        value, default = self.raw.get(name), self.assumed.get(name, default)
        if value is None:
            return default
        self._check_kind(name, value, default)
        return value

    def _check_kind(self, name: str, value: Any, default: Any) -> None:
        """A value is of the kind of its default; whole numbers serve as numbers, true and false do not."""
        if isinstance(default, bool):
            fits = isinstance(value, bool)
        elif isinstance(default, int | float):
            kinds = int if isinstance(default, int) else int | float
            fits = isinstance(value, kinds) and not isinstance(value, bool)
        else:
            fits = not isinstance(default, str) or isinstance(value, str)
        if not fits:
            raise ClearheadError(f"{self.where}: {name} is {value!r}; a value like {default!r} is expected")

    def optional(self, name: str) -> Any:
        """As `get`, but null means that the model goes without: None."""
        value = self.get(name)
        return None if name in self.raw and self.raw[name] is None else value

    def need(self, name: str) -> Any:
        """The value of `name`, which must be there."""
        value = self.get(name, MISSING)
        if value is MISSING:
            raise ClearheadError(f"{self.where}: the key {name!r} is missing; it is needed to build the model")
        return value

    def choose(self, name: str, table: Mapping[str, Any], default: str | None = None) -> Any:
        """The entry of `table` that `name` names."""
        value = self.need(name) if default is None else self.get(name, default)
        if not isinstance(value, str) or value not in table:
            raise ClearheadError(f"{self.where}: {name} is {value!r}; understood are {', '.join(map(str, table))}")
        return table[value]

    def expect(self, name: str, *understood: Any) -> None:
        """Refuse a value other than those `understood`; the first is what an absent key means."""
        value = self.get(name, understood[0])
        if value not in understood:
            allowed = " or ".join(repr(v) for v in understood)
            raise ClearheadError(f"{self.where}: {name} is {value!r}; only {allowed} is understood")

    def expect_list(self, name: str, values: list[str], length: int, understood: tuple[str, ...]) -> None:
        """Refuse a list of another length, or with other entries than those `understood`."""
        strange = [v for v in values if v not in understood]
        if strange:
            raise ClearheadError(f"{self.where}: {name} has {strange[0]!r}; understood are {', '.join(understood)}")
        if len(values) != length:
            raise ClearheadError(f"{self.where}: {name} has {len(values)} entries for {length} layers")

    def inner(self, name: str) -> Reader | None:
        """A reader of the mapping at `name`, or None where there is none."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ClearheadError(f"{self.where}: {name} must be a mapping, not {value!r}")
        return Reader(value, f"{self.where}: {name}")

    def finish(self, ignores: Iterable[str] = ()) -> None:
        """Refuse keys that nobody asked for."""
        known = self.read | set(ignores)
        unknown = [k for k, v in self.raw.items() if k not in known and not (k in NEUTRAL and v == NEUTRAL[k])]
        if not unknown:
            return
        lines = []
        for key in unknown:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            lines.append(f"{key!r} = {self.raw[key]!r}{hint}")
        raise ClearheadError(
            f"{self.where}: not understood: {'; '.join(lines)}. It may change what the model computes, so it is not "
            "dropped in silence; remove the key if it does not matter"
        )


@dataclass(frozen=True)
class GGUFFile:
    """What a GGUF's tensors tell of its config: their shapes, and the numbers of a small one."""

    shapes: Mapping[str, tuple[int, ...]]
    numbers: Callable[[str], list[float]]


@dataclass(frozen=True, kw_only=True)
class GGUF:
    """How a family looks in a GGUF file. Read only."""

    architecture: str
    config: Callable[[Reader, GGUFFile], dict[str, Any]]
    """The published config, from the file's metadata (without the architecture's prefix) and its tensors."""
    weights: Layout


@dataclass(frozen=True, kw_only=True)
class Family:
    """One published architecture as data."""

    model_type: str
    architectures: tuple[str, ...]
    config: Callable[[Reader], Any]
    """A TransformerConfig, or a TwoTowersConfig."""
    to_hf: Callable[[Any], dict[str, Any]]
    weights: Layout
    ignores: frozenset[str] = frozenset()
    """Keys that say nothing about the numbers, beside those of every family."""
    gguf: GGUF | None = None
    told: Callable[[Mapping[str, Any], Collection[str]], dict[str, Any]] | None = None
    """What the names of a file's tensors add to the config beside it, where the config alone does not say it."""

    def read(self, raw: Mapping[str, Any], where: str) -> TransformerConfig:
        """The config of a model of this family, from its published config.

        Raises:
            ClearheadError: a key is missing, has a value not understood, or is unknown.
        """
        reader = self._reader(raw, where)
        try:
            config = self._read(reader)
        except ClearheadError as problem:
            if where in str(problem):
                raise
            raise ClearheadError(f"{where}: {problem}") from problem
        except (TypeError, ValueError, ArithmeticError, AttributeError) as problem:
            keys = ", ".join(sorted(reader.read))
            raise ClearheadError(
                f"{where}: a value has a kind or size that no model can have ({problem}); look at {keys}"
            ) from problem
        reader.finish(CARRIED | self.ignores)
        return config

    def write(self, config: TransformerConfig, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The published config of `config`. What `raw` (the one it was loaded with) says the same way is kept as it
        stands there, keys that do not concern the numbers are carried along, and older spellings are replaced.

        Raises:
            ClearheadError: this family's config can't say all that `config` does.
        """
        new = self._written(config)
        lost = difference(config, self._read(self._reader(new, "written")))
        if lost is not None:
            raise ClearheadError(
                f"this model can't be written as {self.model_type}, whose config has no place for all of it: {lost}"
            )
        if not raw:
            return new
        reader = self._reader(raw, "")
        old = self._written(self._read(reader))
        kept = {k: v for k, v in raw.items() if k in new or k not in reader.read}
        changed = {k: v for k, v in new.items() if k not in raw or v != old[k]}
        return {**kept, **changed}

    def _read(self, reader: Reader) -> TransformerConfig:
        """The config, whose heads are fewer where some were cut off: of that, families know nothing."""
        config: TransformerConfig = self.config(reader)
        cut = reader.get(PRUNED) if reader.raw.get(PRUNED) else None
        return config if cut is None else kept_heads.read(config, cut)

    def _written(self, config: TransformerConfig) -> dict[str, Any]:
        whole, cut = self.to_hf(kept_heads.restored(config)), kept_heads.written(config)
        pruned = {PRUNED: cut} if cut else {}
        return {"architectures": [self.architectures[0]], **whole, **pruned, "model_type": self.model_type}

    def _reader(self, raw: Mapping[str, Any], where: str) -> Reader:
        """A reader that knows which of the family's classes the config names."""
        named = raw.get("architectures") or [self.architectures[0]]
        built = [name for name in named if name in self.architectures]
        if not built:
            raise ClearheadError(
                f"{where}: architectures is {named}; of {self.model_type}, {' or '.join(self.architectures)} is built"
            )
        return Reader(raw, where, built[0])


def difference(config: Any, other: Any, path: str = "") -> str | None:
    """Where two records first differ, in words; None where they are equal."""
    if config == other:
        return None
    if is_dataclass(config) and type(config) is type(other):
        parts = [(f.name, getattr(config, f.name), getattr(other, f.name)) for f in fields(config)]
    elif isinstance(config, tuple) and isinstance(other, tuple) and len(config) == len(other):
        parts = [(str(i), a, b) for i, (a, b) in enumerate(zip(config, other, strict=True))]
    else:
        return f"{path} is {config!r} and would be read back as {other!r}"
    found = (difference(a, b, f"{path}.{name}" if path else name) for name, a, b in parts)
    return next((words for words in found if words is not None), None)
