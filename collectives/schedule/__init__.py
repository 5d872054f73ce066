"""Build schedules: run rank programs for all ranks, check their operations, match sends with receives, store arrays."""
