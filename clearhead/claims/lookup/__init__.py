"""Attention as a soft lookup (S11 to S19)."""
