"""Prove that schedules are free of deadlock, and that every rank ends with the data that the spec requires."""
