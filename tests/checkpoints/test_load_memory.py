"""Building a whole model takes little more memory than its weights (rung of its own: measured in a fresh process)."""

from __future__ import annotations

import subprocess
import sys

import pytest

import clearhead
from clearhead.families import FAMILIES

MEASURE = """
import sys
import torch
import clearhead.checkpoints.load

def resident(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))

torch.set_num_threads(1)
before = resident("VmRSS")
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")  # the high-water mark starts anew
model = clearhead.checkpoints.load.load(sys.argv[1], dtype=sys.argv[2])
weights = sum(p.nbytes for p in model.parameters())
print((resident("VmHWM") - before) / weights)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_load_takes_at_most_15_percent_more_than_the_weights(family, tmp_path):
    """GPT-2's fused and transposed matrices among them. 400 MB, so that what loading itself needs weighs little."""
    wide = {
        "gpt2": {"n_embd": 1024, "n_head": 16, "n_layer": 6, "vocab_size": 20000, "n_positions": 64},
        "llama": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 5, "num_attention_heads": 16},
    }[family]
    model = clearhead.Transformer(FAMILIES[family].read(wide, "config"))
    clearhead.save(model, tmp_path / "model", family=family)
    del model
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "model"), "float32"], capture_output=True, text=True, check=True
    )
    # Measured: 1.08.
    assert float(done.stdout) <= 1.15
