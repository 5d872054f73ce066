"""Measure the costs of messages and training steps on this machine, which predictions need."""
