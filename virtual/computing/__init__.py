"""The time of compute: zero, measured, or modeled by FLOPs and bytes."""
