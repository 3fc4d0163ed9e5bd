"""Closing a session, step by step."""
