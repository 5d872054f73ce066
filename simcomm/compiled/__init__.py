"""Simulate at scale with compiled code, which returns the same results as the reference engine."""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
