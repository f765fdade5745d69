"""Whole models, assembled from the modules in nn."""
