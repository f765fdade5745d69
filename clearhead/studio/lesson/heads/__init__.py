"""Chapter 4, many heads: set by hand, through a training, pruned, and in real models."""

from __future__ import annotations

from clearhead.studio.lesson.heads import compose, cost, pruning, repeats, roles, sentence, snapshots

__all__ = ["compose", "cost", "pruning", "repeats", "roles", "sentence", "snapshots"]
