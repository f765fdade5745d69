"""One side of benchmarks/embed.py, in a process of its own: loads a model once, then answers requests, a line of JSON
each way. `python -m benchmarks.embed_worker LIBRARY FOLDER THREADS`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from typing import Any, Protocol

from benchmarks.worker import MISSING


class Side(Protocol):
    """A library with a model loaded."""

    def embed(self, texts: list[str]) -> Any:
        """Vectors, (N, D)."""
        ...

    def facts(self, texts: list[str]) -> dict[str, Any]:
        """What else there is to tell of texts."""
        ...


class Clearhead:
    def __init__(self, folder: str) -> None:
        import clearhead

        self.clearhead = clearhead
        self.model = clearhead.load(folder)

    def embed(self, texts: list[str]) -> Any:
        return self.clearhead.embed(self.model, texts)

    def facts(self, texts: list[str]) -> dict[str, Any]:
        """How many tokens they have, and the operations of a pass over each by itself."""
        from clearhead.costs.count import counts
        from clearhead.generation.embed import embedding_plan, encoded

        rows = encoded(self.model, texts, embedding_plan(self.model).limit)[0]
        of = counts(self.model.config)
        lengths = Counter(map(len, rows))
        return {"tokens": sum(map(len, rows)), "flops": sum(k * of.flops(1, n).needed for n, k in lengths.items())}


class SentenceTransformers:
    def __init__(self, folder: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            print(error, file=sys.stderr)
            sys.exit(MISSING)
        self.model = SentenceTransformer(folder, device="cpu")

    def embed(self, texts: list[str]) -> Any:
        return self.model.encode(texts, show_progress_bar=False)

    def facts(self, texts: list[str]) -> dict[str, Any]:
        return {}


def main() -> None:
    library, folder, n_threads = sys.argv[1:4]
    # Only answers go to the pipe: whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(int(n_threads))
    side: Side = Clearhead(folder) if library == "clearhead" else SentenceTransformers(folder)
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        vectors = side.embed(request["texts"])
        answer: dict[str, Any] = {"seconds": time.perf_counter() - start}
        if request.get("vectors"):
            answer |= {"vectors": vectors.tolist(), **side.facts(request["texts"])}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
