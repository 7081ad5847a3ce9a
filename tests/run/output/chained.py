"""What a Python program prints that ends by an exception which another one has caused."""

from __future__ import annotations

CHAINED = [
    "noise",
    "Traceback (most recent call last):",
    '  File "a.py", line 1, in f',
    "KeyError: 1",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "b.py", line 2, in g',
    "ValueError: two",
]
