"""Run by Python when a process of a test's job starts: see `environment` in tests/support/mpirun.py."""

import gc

gc.set_threshold(50_000, 20, 50)  # as in tests/conftest.py
