"""Pure tensor functions: no modules, no configs, no state."""
