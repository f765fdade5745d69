"""Encoders, decoders and masks (S48 to S54)."""
