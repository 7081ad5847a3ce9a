"""The distributed optimizer: a Keras optimizer that reduces gradients over all ranks before it applies them."""
