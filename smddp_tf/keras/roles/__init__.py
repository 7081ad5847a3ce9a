"""Facts about optimizers, models and steps for the other folders, of which it imports none."""
