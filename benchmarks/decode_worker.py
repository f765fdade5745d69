"""One side of benchmarks/decode.py, in a process of its own: loads a model once, then answers requests, a line of JSON
each way. `python -m benchmarks.decode_worker LIBRARY SOURCE DTYPE THREADS [TOKENIZER]`; SOURCE "gpt2-124m" is random.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol


class Side(Protocol):
    """A library with a model loaded."""

    model: Any

    def generate(self, rows: list[list[int]], n_new: int) -> list[list[int]]:
        """The greedy tokens, no token ending a text."""
        ...

    def save(self, folder: str) -> None:
        """Write the model as the Hub lays it out."""
        ...

    def weight_bytes(self) -> int:
        """Bytes of all parameters, tied ones once."""
        ...


class Clearhead:
    def __init__(self, source: str, dtype: str, with_tokenizer: bool) -> None:
        import clearhead

        self.clearhead = clearhead
        self.model = clearhead.load(source, dtype=dtype)
        assert not with_tokenizer or self.model.tokenizer is not None

    def generate(self, rows: list[list[int]], n_new: int) -> list[list[int]]:
        results = self.clearhead.generate(self.model, rows, max_new_tokens=n_new, temperature=0, stop_tokens=())
        return [result.tokens for result in results]

    def save(self, folder: str) -> None:
        self.clearhead.save(self.model, folder)

    def weight_bytes(self) -> int:
        return sum(p.nbytes for p in self.model.parameters())


class Transformers:
    def __init__(self, source: str, dtype: str, with_tokenizer: bool) -> None:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        if source == "gpt2-124m":
            torch.manual_seed(0)
            model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to(getattr(torch, dtype))
        else:
            folder, file = (str(Path(source).parent), Path(source).name) if source.endswith(".gguf") else (source, None)
            if with_tokenizer:
                self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, gguf_file=file, dtype=getattr(torch, dtype)
            )
        self.model = model.eval()
        self.torch = torch

    def generate(self, rows: list[list[int]], n_new: int) -> list[list[int]]:
        # No token ends a text, and the best one is taken whatever the checkpoint advises.
        advised = self.model.generation_config
        advised.eos_token_id, advised.pad_token_id = None, 0
        tokens = self.torch.tensor(rows)
        mask = self.torch.ones_like(tokens)
        out = self.model.generate(tokens, attention_mask=mask, do_sample=False, max_new_tokens=n_new)
        answer: list[list[int]] = out[:, tokens.shape[1] :].tolist()
        return answer

    def save(self, folder: str) -> None:
        # Read from GGUF it counts as quantised and refuses to be saved, though its weights are plain numbers.
        self.model.hf_quantizer = None
        self.model.config.__dict__.pop("quantization_config", None)
        self.model.save_pretrained(folder)

    def weight_bytes(self) -> int:
        return sum(p.nbytes for p in self.model.parameters())


def high_water_mark() -> int:
    """The most memory this process ever held, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def main() -> None:
    library, source, dtype, n_threads, with_tokenizer = sys.argv[1:6]
    # Only answers go to the pipe: whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(int(n_threads))
    start = time.perf_counter()
    imports = {"clearhead": "clearhead.checkpoints.load", "transformers": "transformers.models.auto.modeling_auto"}
    __import__(imports[library])
    imported = time.perf_counter()
    before = high_water_mark()
    side: Side = (Clearhead if library == "clearhead" else Transformers)(source, dtype, with_tokenizer == "1")
    loaded = {
        "import_seconds": imported - start,
        "load_seconds": time.perf_counter() - imported,
        "imported_bytes": before,
        "peak_bytes": high_water_mark(),
        "weight_bytes": side.weight_bytes(),
    }
    print(json.dumps(loaded), file=answers, flush=True)
    passes: list[float] = []
    side.model.register_forward_hook(lambda *_: passes.append(time.perf_counter()))
    for line in sys.stdin:
        request = json.loads(line)
        passes.clear()
        start = time.perf_counter()
        if "save" in request:
            side.save(request["save"])
            answer: dict[str, Any] = {}
        else:
            tokens = side.generate(request["rows"], request["n_new"])
            # The first pass reads the prompt; every step after it chooses a token and runs one pass.
            answer = {"tokens": tokens, "prefill_seconds": passes[0] - start, "steps_seconds": passes[-1] - passes[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
