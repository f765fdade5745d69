"""Chapter 1, why sequences needed something new: what its figures ask."""

from clearhead.studio.lesson.recurrence import agreement, factor, lab, matrix, steps

__all__ = ["agreement", "factor", "lab", "matrix", "steps"]
