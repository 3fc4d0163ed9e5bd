"""The embedded PostgreSQL: where it lives, its data, its process, what others left behind."""
