"""Positions (S34 to S39)."""
