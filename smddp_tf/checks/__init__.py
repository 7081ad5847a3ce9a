"""What `hvd.doctor` and `smddprun --doctor` look at."""
