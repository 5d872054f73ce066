"""Draws scenarios and lessons."""
