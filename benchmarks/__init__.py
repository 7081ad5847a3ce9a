"""Measurements. Each prints ratios against peers run in the same call, because absolute times are the machine's noise."""
