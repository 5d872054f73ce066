"""What runs a plan event by event, compiled by numba; it imports nothing else of the compiled engine."""
