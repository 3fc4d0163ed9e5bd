"""What a workspace has in it at first: git, archives, and the command that prepares it (W10)."""
