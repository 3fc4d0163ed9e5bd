"""Compares what there is with what is stored, and puts it right."""
