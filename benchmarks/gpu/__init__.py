"""`make gpu-check`: everything that needs a GPU, in one go (docs/gpu.md)."""
