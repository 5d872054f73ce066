"""Start processes as ranks, watch them, and end them together."""
