"""Execs in containers: the helper inside, and the instance's side of it."""
