"""Once this is imported, imports of `smdistributed` resolve to smddp_tf, here and in child processes."""

from smddp_tf import aliases

aliases.install_everywhere("smdistributed")
