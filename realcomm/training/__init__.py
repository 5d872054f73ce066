"""Data-parallel training on real ranks."""
