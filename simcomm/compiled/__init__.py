"""The compiled engine: the reference engine's results at scale. Modules that simulate are imported on first use."""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
