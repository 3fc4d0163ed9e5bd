"""Watching sessions across replicas, and waiting for their changes."""
