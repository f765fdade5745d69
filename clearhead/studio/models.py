"""The models of one Studio: which there are, what they can do, and those that are in memory."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from clearhead.checkpoints import open_checkpoint
from clearhead.checkpoints.load import blueprint, load, load_tokenizer, usual_dtype
from clearhead.checkpoints.own import AT, MODELS, own_names, snapshots_of
from clearhead.checkpoints.shipped import SHIPPED
from clearhead.config import (
    AttentionConfig,
    ExpertsConfig,
    FramesConfig,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    PatchesConfig,
    StackConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.model.transformer import Transformer
from clearhead.studio.run_folders import RunFolders

DEFAULT = "clear-gpt"
"""What is explored where nothing else was asked for."""
ATTENTION = (AttentionConfig, LatentAttentionConfig)


class Models:
    """What can be asked for by an id. A browser never names a path: ids stand for what the command line named, and
    for the models that packages ship. Safe to use from several threads.
    """

    def __init__(
        self, sources: Iterable[str] = (), *, runs: RunFolders | None = None, limit_bytes: int = 4 << 30
    ) -> None:
        self.runs = runs or RunFolders()
        self.sources = {name: name for name in sorted(own_names(), key=lambda name: (name != DEFAULT, name))}
        self.missing = {name: shipped.extra for name, shipped in SHIPPED.items() if find_spec(shipped.module) is None}
        self.sources |= {name: name for name in SHIPPED if name not in self.missing}
        self._given: WeakValueDictionary[str, Transformer] = WeakValueDictionary()
        """Models that a notebook holds. They live as long as it holds them, and are never dropped for another."""
        self._given_ids: set[str] = set()
        """All that there were: what is kept of a model is never told of the next of its name."""
        self.named: list[str] = []
        """The ids of what the command line named, in its order."""
        for source in sources:
            self.named.append(self._id_for(source))
            self.sources[self.named[-1]] = source
        self.limit_bytes = limit_bytes
        self._loaded: OrderedDict[str, Transformer] = OrderedDict()
        self._told: dict[str, dict[str, Any]] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._stamps: dict[str, int] = {}
        self._locks: dict[str, threading.RLock] = {}
        self._mutex = threading.Lock()

    def offer(self, model: str | Transformer) -> str:
        """The id of a model that Python names: an id, what `clearhead.load` takes, or a model that is there already,
        which is looked at as it is. The same one has the same id each time.

        Raises:
            ClearheadError: a model that is in training.
        """
        if isinstance(model, str):
            try:
                self.source(model)
            except UsageError:
                known = next((id for id, source in self.sources.items() if source == model), None)
                if known is not None:
                    return known
                self.sources[id := self._id_for(model)] = model
                return id
            return model
        if model.training:
            raise ClearheadError("the model is in training, where dropout makes each pass another; call model.eval()")
        with self._mutex:
            known = next((id for id, one in self._given.items() if one is model), None)
            if known is None:
                name = "model" if model.origin is None else f"{Path(str(model.origin.where)).name}-here"
                self._given[known := self._id_for(name)] = model
                self._given_ids.add(known)
        return known

    def code(self, id: str) -> str:
        """The line of Python that makes a model.

        Raises:
            UsageError: there is no such model.
        """
        if id in self._given:
            return "# model is the one that this view was given"
        return f"model = clearhead.load({self.source(id)!r})"

    def _id_for(self, source: str) -> str:
        """A short name of a source that no other has: the last part of its path, in letters that need no escaping."""
        if self.sources.get(source) == source:
            return source
        last = re.split(r"[/\\]", source.rstrip("/\\"))[-1].removesuffix(".gguf").lower()
        slug = re.sub(r"[^a-z0-9.-]+", "-", last).strip("-.")[:60] or "model"
        taken, number = slug, 1
        while taken in self.sources or taken in self.missing or taken in self._given_ids:
            taken, number = f"{slug}-{number + 1}", number + 1
        return taken

    # ---- what there is

    def ids(self) -> list[str]:
        """All that can be asked for, what the command line named first. Beside them are snapshots, as clear-2l@0003,
        and the weights along runs, as RUN@step-000200.
        """
        return [*dict.fromkeys([*self.named, *self.sources])]

    def listing(self) -> list[dict[str, Any]]:
        """Each model in numbers, from its config alone: see `about`. One that can't be read has `error` in their
        place, and one whose package is not installed `install`.
        """
        found = []
        for id in self.ids():
            try:
                found.append(self.about(id))
            except ClearheadError as error:
                found.append({"id": id, "error": str(error)})
        return [
            *found,
            *({"id": id, "install": f'pip install "clearhead[{extra}]"'} for id, extra in self.missing.items()),
        ]

    def about(self, id: str) -> dict[str, Any]:
        """A model's kind and sizes; no weights are read.

        Raises:
            ClearheadError: there is none, or it can't be read.
        """
        if id not in self._told:
            with _as_one_error(id), open_checkpoint(self.source(id)) as checkpoint:
                plan = blueprint(checkpoint)
                numbers = sum(p.numel() for p in plan.model.parameters())
                dtype = usual_dtype(checkpoint)
                self._told[id] = {
                    "id": id,
                    "family": plan.origin.family.model_type,
                    "params": numbers,
                    "bytes": numbers * dtype.itemsize,
                    "dtype": str(dtype).removeprefix("torch."),
                    "device": "cpu",
                    "snapshots": self._snapshots(id),
                    **_sizes(plan.model.config),
                }
        return {**self._told[id], "loaded": id in self._loaded}

    def _snapshots(self, id: str) -> list[str]:
        """The snapshots along a model's training, as ids."""
        source = self.sources.get(id)
        return [f"{id}{AT}{one}" for one in snapshots_of(MODELS / source)] if source in own_names() else []

    def source(self, id: str) -> str:
        """What `clearhead.load` takes for an id.

        Raises:
            UsageError: there is no such model.
        """
        if id in self._given:
            return id
        name, at, number = id.partition(AT)
        source = self.sources.get(name)
        if source is not None and (not at or re.fullmatch(r"\d{4}", number, re.ASCII)):
            return f"{source}{at}{number}"
        kept = self.runs.kept(id)
        if kept is not None:
            self._forget_if_changed(id, kept.path)
            return str(kept.path)
        if (extra := self.missing.get(name)) is not None:
            raise UsageError(f'{name} is not installed. Run: pip install "clearhead[{extra}]", and start again')
        raise UsageError(f"there is no model {id[:60]!r}; there are {', '.join(self.ids())}")

    def stamp(self, id: str) -> int:
        """A number that changes with the weights of a model that a training still writes, or that a notebook holds;
        0 of all others.
        """
        self.source(id)
        given = self._given.get(id)
        if given is not None:
            # Whoever holds a model may train it on: every write in place counts up, and new storage is elsewhere.
            return hash(tuple((p._version, p.data_ptr()) for p in given.parameters()))
        return self._stamps.get(id, 0)

    def _forget_if_changed(self, id: str, path: Path) -> None:
        """A run that is begun anew writes other weights where the old ones were."""
        stamp = path.stat().st_mtime_ns if path.exists() else 0
        with self._mutex:
            if self._stamps.setdefault(id, stamp) != stamp:
                self._stamps[id] = stamp
                for held in (self._loaded, self._told, self._tokenizers):
                    held.pop(id, None)

    # ---- what is in memory

    def get(self, id: str) -> Transformer:
        """A model, which is loaded once and kept while there is room.

        Raises:
            ClearheadError: there is none, or it can't be loaded; the message says why.
        """
        source = self.source(id)
        # Not under the lock: what is there may be asked about while a pass of it runs.
        if (there := self._there(id)) is not None:
            return there
        with self.lock(id):
            if (there := self._there(id)) is not None:
                return there
            with _as_one_error(id):
                self._check_room(id)
                model: Transformer = load(source)
            with self._mutex:
                self._loaded[id] = model
                self._drop_oldest()
            return model

    def holds(self, id: str) -> bool:
        """Whether a model is in memory, so that asking for it loads nothing."""
        return id in self._loaded or id in self._given

    def _there(self, id: str) -> Transformer | None:
        """A model that is in memory, which so becomes the one used last."""
        with self._mutex:
            if (given := self._given.get(id)) is not None:
                return given
            if id not in self._loaded:
                return None
            self._loaded.move_to_end(id)
            return self._loaded[id]

    def tokenizer(self, id: str) -> Tokenizer:
        """A model's tokenizer, for which no weights are read.

        Raises:
            ClearheadError: there is no such model, or it reads no text.
        """
        source = self.source(id)
        model = self._there(id)
        found = model.tokenizer if model is not None else self._tokenizers.get(id)
        if found is None:
            with self.lock(id), _as_one_error(id):
                found = load_tokenizer(source)
        if not isinstance(found, Tokenizer):
            raise ClearheadError(f"{id} reads no text, so it has no tokens to show")
        self._tokenizers[id] = found
        return found

    @contextmanager
    def lock(self, id: str) -> Iterator[None]:
        """Held while a model is loaded, or runs: one pass at a time. One thread may take it twice."""
        self.source(id)
        with self._mutex:
            lock = self._locks.setdefault(id, threading.RLock())
        with lock:
            yield

    def _drop_oldest(self) -> None:
        """Keep to the limit: a model that is dropped here lives on for those who still run it. The newest stays."""
        sizes = {id: sum(p.nbytes for p in model.parameters()) for id, model in self._loaded.items()}
        while len(self._loaded) > 1 and sum(sizes.values()) > self.limit_bytes:
            id, _ = self._loaded.popitem(last=False)
            del sizes[id]

    def _check_room(self, id: str) -> None:
        """Refuse what this machine can't hold, before it makes the machine swap."""
        needed, free = self.about(id)["bytes"], _free_bytes()
        if free is not None and needed > free:
            raise ClearheadError(
                f"{id} takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free on this machine; close something, "
                "or take a smaller model"
            )


@contextmanager
def _as_one_error(id: str) -> Iterator[None]:
    """Whatever goes wrong with a model's files becomes one error that names the model."""
    try:
        yield
    except ClearheadError:
        raise
    except (Exception, MemoryError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise ClearheadError(f"{id} can't be loaded: {lines[0][:300]}") from error


def _free_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")), None)
    except OSError:
        return None


def _sizes(config: TransformerConfig | TwoTowersConfig) -> dict[str, Any]:
    """The sizes that an explorer asks about, and what can be done with the model."""
    if isinstance(config, TwoTowersConfig):
        nothing = dict.fromkeys(("lens", "ablate", "generate", "cross", "fill", "sound", "experts", "scan"), False)
        return {"kind": "two towers", **_of_stack(config.text), "can": {"attn": True, "pictures": True, **nothing}}
    stacks = [stack for stack in (config.encoder, config.decoder) if stack is not None]
    mixers = [block.mixer.op for stack in stacks for block in stack.blocks]
    fronts = [stack.embed.front for stack in stacks]
    attends = any(isinstance(op, ATTENTION) for op in mixers)
    writes = config.heads.tokens is not None
    can = {
        "attn": attends,
        "lens": writes,
        "ablate": attends,
        "generate": writes and config.decoder is not None,
        "cross": len(stacks) == 2 and any(block.cross is not None for block in config.stack.blocks),
        "fill": writes and config.decoder is None,
        "pictures": any(isinstance(front, PatchesConfig) for front in fronts),
        "sound": any(isinstance(front, FramesConfig) for front in fronts),
        "experts": any(_has_experts(stack) for stack in stacks),
        "scan": any(isinstance(op, MambaConfig | Mamba2Config) for op in mixers),
    }
    kind = "encoder-decoder" if len(stacks) == 2 else "encoder" if config.decoder is None else "decoder"
    return {"kind": kind, **_of_stack(config), "can": can}


def _has_experts(stack: StackConfig) -> bool:
    return any(block.ffn is not None and isinstance(block.ffn.op, ExpertsConfig) for block in stack.blocks)


def _of_stack(config: TransformerConfig) -> dict[str, Any]:
    """Of the stack that gives the output. Heads are those of its first attention; None where there is none."""
    stack = config.stack
    op: Any = next((block.mixer.op for block in stack.blocks if isinstance(block.mixer.op, ATTENTION)), None)
    n_heads = getattr(op, "n_heads", None)
    return {
        "layers": len(stack.blocks),
        "encoder_layers": len(config.encoder.blocks) if config.encoder and config.decoder else 0,
        "heads": n_heads,
        "kv_heads": getattr(op, "n_kv_heads", n_heads),
        "d_model": config.d_model,
        "d_head": getattr(op, "d_head", None),
        "vocab": getattr(stack.embed.front, "vocab_size", None),
        "ctx": config.context,
    }
