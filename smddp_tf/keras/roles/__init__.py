"""What the other folders ask about optimizers, models and steps. It imports none of them."""
