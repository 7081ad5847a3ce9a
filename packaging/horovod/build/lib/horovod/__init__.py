"""Takes imports of `horovod` to smddp_tf: installs the alias, which replaces this module."""

import importlib
import sys

from smddp_tf import aliases

del sys.modules[__name__]  # the alias refuses to hide a Horovod that is imported already; this one makes room
aliases.install("horovod")
importlib.import_module("horovod")
