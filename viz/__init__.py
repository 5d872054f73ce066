"""Players, pictures and films of a Trace, pictures of a topology and of accuracy, and the report as HTML.

A function is loaded, with the drawing libraries that it needs, when it is first used.
"""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
