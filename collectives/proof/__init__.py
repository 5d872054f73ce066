"""Prove schedules: no deadlock, and every rank ends with the data that the spec requires."""
