"""Failure cases with real processes: what was promised, and what was measured. `make test-faults`."""
