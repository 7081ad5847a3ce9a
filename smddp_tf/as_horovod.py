"""Once this is imported, imports of `horovod` resolve to smddp_tf, here and in child processes."""

from __future__ import annotations

import os

from smddp_tf import aliases

aliases.install("horovod")
os.environ.update(aliases.environment("horovod"))
