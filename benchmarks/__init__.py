"""Measurements, each with ratios against peers run in the same call: absolute times are the noise of the machine."""
