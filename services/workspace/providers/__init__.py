"""Ways to make workspaces, behind one registry (W8)."""
