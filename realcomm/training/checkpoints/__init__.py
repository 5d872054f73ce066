"""Checkpoints of a training: written whole or not at all, found again, and read without executing anything."""
