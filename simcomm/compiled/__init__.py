"""The compiled engine: the reference engine's answer at scale. What simulates is loaded when it is first used."""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
