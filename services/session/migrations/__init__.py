"""Migrations of the schema `session`."""
