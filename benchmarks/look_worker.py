"""One side of benchmarks/look.py, in a process of its own: loads a model once, then runs it as it is asked to, a line
of JSON each way. `python -m benchmarks.look_worker LIBRARY WEIGHTS THREADS TOKENS [FOLDER]`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.machine import peak_bytes, seconds
from benchmarks.worker import MISSING

SIZE = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}

Runs = dict[str, Callable[[], Any]]
"""By name: "plain" with nobody looking, "nothing" with the means of looking and nothing looked at, "all". Each gives
what it has, of which `logits` finds the output; "all" gives also every tensor it kept.
"""


def tokens(n: int) -> Any:
    import torch

    return torch.randint(SIZE["vocab_size"], (1, n), generator=torch.Generator().manual_seed(0))


def clearhead(weights: str, ids: Any) -> Runs:
    from clearhead.checkpoints.load import load
    from clearhead.lens.record import look
    from clearhead.taps import Recorder

    model = load(weights)

    def everything() -> tuple[Any, list[Any]]:
        seen = look(model, ids, "*")
        return seen.output, list(seen.values())

    return {
        "plain": lambda: (model(ids), []),
        "nothing": lambda: (model(ids, taps=Recorder(())), []),
        "all": everything,
    }


def transformers(weights: str, ids: Any) -> Runs:
    """Its fused kernel gives no patterns, so with all outputs on it runs the eager one."""
    library = import_module("transformers")
    plain = library.GPT2LMHeadModel.from_pretrained(weights, attn_implementation="sdpa").eval()
    eager = library.GPT2LMHeadModel.from_pretrained(weights, attn_implementation="eager").eval()
    on = {"output_attentions": True, "output_hidden_states": True}

    def everything() -> tuple[Any, list[Any]]:
        out = eager(ids, use_cache=False, **on)
        return out.logits, [*out.attentions, *out.hidden_states]

    return {"plain": lambda: (plain(ids, use_cache=False).logits, []), "all": everything}


def transformer_lens(weights: str, ids: Any) -> Runs:
    """It wraps the parts of a model of `transformers`."""
    model = import_module("transformer_lens").TransformerBridge.boot_transformers(weights)

    def everything() -> tuple[Any, list[Any]]:
        logits, cache = model.run_with_cache(ids)
        return logits, list(cache.values())

    return {"nothing": lambda: (model(ids), []), "all": everything}


def nnsight(weights: str, ids: Any) -> Runs:
    """It wraps a model of `transformers`; all is the output of every part that has one, and the eager patterns."""
    library = import_module("nnsight")
    model = library.NNsight(
        import_module("transformers").GPT2LMHeadModel.from_pretrained(weights, attn_implementation="eager").eval()
    )

    def nothing() -> tuple[Any, list[Any]]:
        with model.trace(ids, use_cache=False):
            logits = model.lm_head.output.save()
        return logits, []

    def everything() -> tuple[Any, list[Any]]:
        kept: list[Any] = []
        with model.trace(ids, use_cache=False):
            for block in model.transformer.h:
                kept.append(block.ln_1.output.save())
                kept.append(block.attn.c_attn.output.save())
                kept.append(block.attn.output[0].save())
                kept.append(block.attn.output[1].save())
                kept.append(block.ln_2.output.save())
                kept.append(block.mlp.c_fc.output.save())
                kept.append(block.mlp.act.output.save())
                kept.append(block.mlp.output.save())
                kept.append(block.output.save())
            kept.append(model.transformer.ln_f.output.save())
            logits = model.lm_head.output.save()
        return logits, kept

    return {"nothing": nothing, "all": everything}


SIDES = {
    "clearhead": clearhead,
    "transformers": transformers,
    "transformer_lens": transformer_lens,
    "nnsight": nnsight,
}


def save(weights: str) -> None:
    """Random weights, which all sides read."""
    import torch

    library = import_module("transformers")
    torch.manual_seed(0)
    library.GPT2LMHeadModel(library.GPT2Config(**SIZE)).eval().save_pretrained(weights)


def main() -> None:
    library, weights, n_threads, n_tokens, *folder = sys.argv[1:]
    # Only answers go to the pipe: whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if folder and folder[0]:
        sys.path.insert(0, folder[0])
    import torch

    torch.set_num_threads(int(n_threads))
    torch.set_grad_enabled(False)
    if library == "save":
        save(weights)
        return
    try:
        runs = SIDES[library](weights, tokens(int(n_tokens)))
    except ImportError as problem:
        print(problem, file=sys.stderr)
        sys.exit(MISSING)
    print(json.dumps({"runs": list(runs)}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        run = runs[request["run"]]
        if request["what"] == "seconds":
            answer: dict[str, Any] = {"seconds": seconds(run)}
        elif request["what"] == "peak":
            answer = {"bytes": peak_bytes(run)}
        else:
            logits, kept = run()
            answer = {
                "logits": logits[0, -1, :8].tolist(),
                "n_kept": len(kept),
                "kept_bytes": sum(tensor.nbytes for tensor in kept),
            }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
