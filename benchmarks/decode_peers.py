"""The peers of benchmarks/decode.py that are not made of torch, each by its own fastest way."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

UBATCH, BATCH = 512, 2048
"""Tokens that llama.cpp computes at a time, and takes at a time: as its own benchmark has them."""
ROUND = 256
"""Its contexts are a multiple of so many tokens."""


class LlamaCpp:
    """Through its C functions: the Python class around them copies all logits, and is slower."""

    NEEDS = ("llama_cpp", "numpy")

    def __init__(self, source: str, n_threads: int, dtype: str = "") -> None:
        import llama_cpp
        import numpy

        self.c, self.numpy, self.n_threads, self._file = llama_cpp, numpy, n_threads, source.encode()
        quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(quiet, None)
        self._quiet = quiet
        llama_cpp.llama_backend_init()
        self.model = self._load(vocab_only=False)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self._context: Any = None
        self._sizes = (0, 0)

    def _load(self, *, vocab_only: bool) -> Any:
        params = self.c.llama_model_default_params()
        params.vocab_only, params.n_gpu_layers = vocab_only, 0
        model = self.c.llama_model_load_from_file(self._file, params)
        if not model:
            raise SystemExit(f"llama.cpp can't load {self._file.decode()}")
        return model

    def _ready(self, n_rows: int, length: int) -> Any:
        """A context with room for so many texts of so many tokens; the last one again, emptied, where it will do."""
        length = -(-length // ROUND) * ROUND
        if self._context is None or self._sizes != (n_rows, length):
            if self._context is not None:
                self.c.llama_free(self._context)
            params = self.c.llama_context_default_params()
            params.n_ctx, params.n_seq_max = n_rows * length, n_rows
            params.n_batch, params.n_ubatch = BATCH, UBATCH
            params.n_threads = params.n_threads_batch = self.n_threads
            self._context, self._sizes = self.c.llama_init_from_model(self.model, params), (n_rows, length)
        self.c.llama_memory_clear(self.c.llama_get_memory(self._context), True)
        return self._context

    def generate(self, rows: list[list[int]], n_new: int, **options: Any) -> tuple[list[list[int]], list[float]]:
        n_rows, length = len(rows), len(rows[0])
        context = self._ready(n_rows, length + n_new)
        batch = self.c.llama_batch_init(BATCH, 0, 1)
        cells = [(t, i, row, i == length - 1) for row, ids in enumerate(rows) for i, t in enumerate(ids)]
        texts: list[list[int]] = [[] for _ in rows]
        passes: list[float] = []
        for step in range(n_new):
            best: list[int] = []
            for start in range(0, len(cells), BATCH):
                best += self._read(context, batch, cells[start : start + BATCH])
            passes.append(time.perf_counter())
            for row, token in enumerate(best):
                texts[row].append(token)
            cells = [(token, length + step, row, True) for row, token in enumerate(best)]
        self.c.llama_batch_free(batch)
        return texts, passes

    def _read(self, context: Any, batch: Any, cells: list[tuple[int, int, int, bool]]) -> list[int]:
        """Read tokens (id, place, text, whether it is scored); the best next ones of those scored."""
        for i, (token, place, row, scored) in enumerate(cells):
            batch.token[i], batch.pos[i], batch.logits[i] = token, place, scored
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, row
        batch.n_tokens = len(cells)
        if self.c.llama_decode(context, batch) != 0:
            raise SystemExit("llama.cpp can't decode")
        scored_at = [i for i, cell in enumerate(cells) if cell[3]]
        as_array, size = self.numpy.ctypeslib.as_array, (self.vocab_size,)
        logits = (as_array(self.c.llama_get_logits_ith(context, i), size) for i in scored_at)
        return [int(y_V.argmax()) for y_V in logits]

    def weight_bytes(self) -> float:
        return float(self.c.llama_model_size(self.model))

    def tokenizer_seconds(self) -> float:
        start = time.perf_counter()
        self.c.llama_model_free(self._load(vocab_only=True))
        return time.perf_counter() - start

    def products(self) -> AbstractContextManager[list[float]]:
        raise NotImplementedError


class CTranslate2:
    """Of a folder that `convert` wrote."""

    NEEDS = ("ctranslate2",)

    def __init__(self, source: str, dtype: str, n_threads: int) -> None:
        import ctranslate2

        self.generator = ctranslate2.Generator(
            source, "cpu", compute_type=dtype, inter_threads=1, intra_threads=n_threads
        )
        self._folder = Path(source)

    def generate(self, rows: list[list[int]], n_new: int, **options: Any) -> tuple[list[list[int]], list[float]]:
        calls: list[float] = []

        def called(_: Any) -> bool:
            calls.append(time.perf_counter())
            return False

        # No token ends a text before it has the least length.
        length = {"min_length": n_new, "max_length": n_new, "include_prompt_in_result": False}
        results = self.generator.generate_batch([list(map(str, ids)) for ids in rows], callback=called, **length)
        # It calls once a row and step.
        return [result.sequences_ids[0] for result in results], calls[:: len(rows)]

    def weight_bytes(self) -> float:
        """Of its file without the table of positions, of which a step reads one row."""
        tables = json.loads((self._folder / "tables.json").read_text())
        return float((self._folder / "model.bin").stat().st_size - tables["bytes"])

    def tokenizer_seconds(self) -> float:
        return 0.0

    def products(self) -> AbstractContextManager[list[float]]:
        raise NotImplementedError


def convert(source: str, target: Path, quantization: str | None) -> None:
    """Write a GPT-2 in the Hub's layout as CTranslate2 reads it. It has no tokenizer: a token is its number in words.

    Raises:
        ImportError: CTranslate2 is not installed, or the `transformers` package that it reads models with.
    """
    import transformers
    from ctranslate2.converters.transformers import GPT2Loader

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(source)
    spec: Any = GPT2Loader().get_model_spec(model)
    spec.register_vocabulary([str(i) for i in range(model.config.vocab_size)])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
    spec.validate()
    spec.optimize(quantization=quantization)
    target.mkdir(parents=True)
    spec.save(str(target))
    (target / "tables.json").write_text(json.dumps({"bytes": model.transformer.wpe.weight.nbytes}))
