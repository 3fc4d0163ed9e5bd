"""The contract's side of the workspace service."""
