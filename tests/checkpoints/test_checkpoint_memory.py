"""Building the weights adds at most 1.15 x their size to resident memory, whatever they are stored as.

Measured in a process of its own: the highest resident memory from after the imports on, over the weights in the asked
dtype. What is beyond 1 is a chunk, torch's own code as it is first used, and the header.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearhead.checkpoints import write_checkpoint

LIMIT = 1.15

CASES = [("float32", "bfloat16"), ("pickle", "float32"), ("bfloat16", "float32"), ("float32", "float32")]
"""What the weights are stored as, and what they are asked for as."""

MEASURE = """
import json, os, sys
import torch
from clearhead.checkpoints import open_checkpoint

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))

def share(source, dtype):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the highest value so far
    before = memory("VmRSS")
    with open_checkpoint(source) as checkpoint:
        weights = {}
        for name, info in checkpoint.tensors.items():
            weights[name] = torch.empty(info.shape, dtype=getattr(torch, dtype))
            checkpoint.read_into(name, weights[name])
    return (memory("VmHWM") - before) / sum(weight.nbytes for weight in weights.values())

torch.set_num_threads(1)
for case in json.loads(sys.argv[1]):
    if child := os.fork():  # so that none finds the memory that another has left
        os.waitpid(child, 0)
    else:
        print(share(*case), flush=True)
        os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel's own figures are Linux's")
def test_resident_memory_while_the_weights_are_built(tmp_path: Path) -> None:
    tensors = [(f"layers.{layer}.weight", torch.zeros(2048, 2048, dtype=torch.bfloat16)) for layer in range(24)]
    write_checkpoint(tmp_path / "bfloat16", {}, tensors)
    write_checkpoint(tmp_path / "float32", {}, ((name, t.float()) for name, t in tensors), max_shard_bytes=100_000_000)
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "config.json").write_text("{}")
    torch.save(dict(tensors), tmp_path / "pickle" / "pytorch_model.bin")
    cases = json.dumps([(str(tmp_path / stored), asked) for stored, asked in CASES])
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, cases], capture_output=True, text=True, check=True, timeout=300
    )
    found = dict(zip(CASES, map(float, run.stdout.split()), strict=True))
    assert all(0.95 < share <= LIMIT for share in found.values()), found
