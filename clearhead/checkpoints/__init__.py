"""Weights in and out of files: safetensors, GGUF, pickles without code, the Hub, and models that packages ship."""

from clearhead.checkpoints.checkpoint import Checkpoint, TensorInfo
from clearhead.checkpoints.source import open_checkpoint
from clearhead.checkpoints.write import write_checkpoint

__all__ = ["Checkpoint", "TensorInfo", "open_checkpoint", "write_checkpoint"]
