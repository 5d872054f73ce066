"""Simulate messages that gloo sends over TCP in segments, with windows, send buffers, and ranks that share cores."""
