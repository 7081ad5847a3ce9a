"""Programs that run in place of a rank's command, or before it: the supervisor, a function's process."""
