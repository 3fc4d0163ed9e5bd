"""Contracts to domain and back, one module per noun."""
