"""Scale and efficiency (S55 to S65)."""
