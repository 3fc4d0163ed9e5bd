"""What may be written to a session under its lock, and what follows from it."""
