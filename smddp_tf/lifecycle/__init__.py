"""What happens around a session: checks before it starts, reports when a rank waits or fails."""
