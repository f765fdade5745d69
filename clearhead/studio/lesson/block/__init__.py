"""Chapter 6: the diagram of a model, what stands in each of its parts, norms, and what else a block is fed."""
