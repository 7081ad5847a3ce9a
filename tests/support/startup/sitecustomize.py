"""Run by Python when a process of a test's job starts: see `environment` in tests/support/mpirun.py."""

import atexit
import gc

gc.set_threshold(50_000, 20, 50)  # as in tests/conftest.py
# The first that is registered runs last. After it Python would look through all objects of TensorFlow for cycles, which
# is a quarter of what a process costs that imports it.
atexit.register(gc.freeze)
