"""Many heads (S29 to S33)."""
