"""Compute exact timings without simulating every message."""
