"""Modules, one idea a file; each takes the stream's width and its own config, and nothing else."""
