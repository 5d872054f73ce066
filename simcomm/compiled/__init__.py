"""The compiled engine returns the reference engine's results at scale. Modules that simulate load on first use."""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
