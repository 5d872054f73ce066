"""Predictions next to published tables and measured runs: one way of judging, its tables, pictures and JSON."""
