"""A row that has ended leaves the batch: no pass works on it any more."""

from __future__ import annotations

import torch

import clearhead
from tests.model.small import small


def test_passes_shrink_as_rows_end() -> None:
    model = small()
    prompts = torch.randint(0, 50, (3, 4), generator=torch.Generator().manual_seed(0)).tolist()
    alone = [clearhead.generate(model, row, max_new_tokens=20, temperature=0, stop_tokens=()).tokens for row in prompts]
    widths: list[int] = []
    handle = model.register_forward_pre_hook(lambda module, inputs: widths.append(inputs[0].shape[0]))
    stop = alone[0][2]
    results = clearhead.generate(model, prompts, max_new_tokens=20, temperature=0, stop_tokens=(stop,))
    handle.remove()
    lengths = [row.index(stop) + 1 if stop in row else 20 for row in alone]
    assert [result.tokens for result in results] == [row[:n] for row, n in zip(alone, lengths, strict=True)]
    # The first pass reads the prompts; the one behind token n works on the rows that are longer than n.
    assert widths == [3, *(sum(n > done for n in lengths) for done in range(1, max(lengths)))]
    assert len(set(widths)) > 1
