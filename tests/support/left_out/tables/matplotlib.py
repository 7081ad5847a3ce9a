"""In front of matplotlib, for jobs of tests: see `environment` in tests/support/mpirun.py."""

raise ImportError("tests/support/left_out hides matplotlib: Keras imports it where it is found, and does without it")
