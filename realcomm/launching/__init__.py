"""Processes that work as ranks: started together, watched, and ended together."""
