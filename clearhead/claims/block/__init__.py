"""The block (S40 to S47)."""
