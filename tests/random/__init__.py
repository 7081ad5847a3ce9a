"""Random models, optimizers, data and ways of training on several ranks, each compared with one process.

    python -m tests.random [--seconds 60] [--seed 1] [--ranks 2] [--nodes 2,1] [--case K] [--with name=value ...]

`case.py` says what can be drawn and `exclusions.py` what cannot be compared; `alone.py` is the oracle, `ways.py` the
same on all ranks, `comparison.py` the difference.
"""
