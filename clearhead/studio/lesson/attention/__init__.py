"""Chapter 3, scaled dot-product attention: the four steps on ten words, and on a real model's head."""

from __future__ import annotations

from clearhead.studio.lesson.attention import leftover, model, only, rows, shapes, stepper, width

__all__ = ["leftover", "model", "only", "rows", "shapes", "stepper", "width"]
