"""What the runner calls: the journal, workspaces and the processes in them."""
