"""What runs in place of a rank's command, or before it: the supervisor, a function's process, this process itself."""
