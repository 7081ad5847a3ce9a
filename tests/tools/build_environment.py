"""tools/build_env.py, which setup.py and these tests load by its path."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load_build_env():
    spec = importlib.util.spec_from_file_location("build_env", ROOT / "tools" / "build_env.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_env"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


build_env = load_build_env()
