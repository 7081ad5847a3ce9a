"""Keeps the ranks together in `fit` and `evaluate`."""
