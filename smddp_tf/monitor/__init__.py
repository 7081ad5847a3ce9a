"""Records what a job does: steps, processes and hosts, as files in one folder."""
