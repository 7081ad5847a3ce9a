"""What `fit` and `evaluate` do to keep the ranks together."""
