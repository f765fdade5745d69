"""Chapter 2, attention as a soft lookup: what its figures ask."""

from clearhead.studio.lesson.lookup import documents, learning, plane

__all__ = ["documents", "learning", "plane"]
