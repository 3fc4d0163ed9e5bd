"""Holders that are gone, hang, or lost what they began: found, replaced, their turns ended."""
