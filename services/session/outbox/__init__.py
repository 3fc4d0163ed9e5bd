"""Outboxes: what is stored and then brought about by whichever replica is there."""
