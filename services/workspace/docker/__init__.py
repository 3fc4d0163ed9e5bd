"""Provider `docker`: workspaces in containers."""
