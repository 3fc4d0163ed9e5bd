"""Execs: processes that die when they must, whatever they did to get away."""
