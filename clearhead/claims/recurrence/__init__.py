"""What attention replaced, and why (S2 to S10, S55)."""
