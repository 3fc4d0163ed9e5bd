"""One script per change, NNNN_what.py."""
