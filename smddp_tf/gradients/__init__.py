"""Reduces the gradients of a training step: dense, sparse, local to a rank."""
