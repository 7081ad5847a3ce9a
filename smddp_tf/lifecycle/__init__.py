"""Around a session: checks before it starts, reports when a rank waits or fails."""
