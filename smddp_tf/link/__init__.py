"""The connections between the launcher and its ranks, and what is said over them."""
