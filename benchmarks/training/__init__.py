"""Whole training, beside what a user would pick: `python -m benchmarks.training`."""
