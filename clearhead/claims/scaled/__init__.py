"""Scaled dot-product attention (S20 to S28)."""
