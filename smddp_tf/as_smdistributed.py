"""Once this is imported, imports of `smdistributed` resolve to smddp_tf, here and in child processes."""

from __future__ import annotations

import os

from smddp_tf import aliases

aliases.install("smdistributed")
os.environ.update(aliases.environment("smdistributed"))
