"""Proofs about schedules: no deadlock, and every rank ends with what the spec says."""
