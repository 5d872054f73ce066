"""Exact timings without simulating every message."""
