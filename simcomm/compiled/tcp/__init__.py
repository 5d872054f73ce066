"""Simulate messages that gloo sends over TCP: in segments, through windows and buffers, by ranks that share cores."""
