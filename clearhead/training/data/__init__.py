"""Data of a run: documents, memory-mapped token ids, and the batch of every step."""
