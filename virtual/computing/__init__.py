"""The compute time of ranks: zero, measured, or modeled from FLOPs and bytes."""
