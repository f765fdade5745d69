"""Chapter 7: who may see whom, filling blanks, writing and translating."""
