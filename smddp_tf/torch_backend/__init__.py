"""The backend "smddp" of `torch.distributed`: process groups on this library's engine. Needs no TensorFlow."""
