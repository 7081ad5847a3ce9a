"""Optimizer state that the ranks share: each has a part of every variable's slots, and updates that part."""
