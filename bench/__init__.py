"""What Moorage costs, measured against a reference in the same run: `python -m bench`."""
