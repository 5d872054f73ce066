"""Exact answers without simulating every message."""
