"""Saving and loading models with a distributed optimizer."""
