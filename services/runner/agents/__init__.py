"""Agents that come with the runner; each runs in a process of its own and imports no service."""
