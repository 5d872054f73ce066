"""Measurements: published tables, the output of nccl-tests, and the model adapted to your own measurements."""
