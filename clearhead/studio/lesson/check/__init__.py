"""The check: what backs its scenarios."""

from clearhead.studio.lesson.check import numbers, pronoun

__all__ = ["numbers", "pronoun"]
