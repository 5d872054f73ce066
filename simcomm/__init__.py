"""Virtual ranks in virtual time: clusters, what both engines obey, the two engines, and what answers on them.

Folders import one way, in this order: ``cluster`` (what is described: nodes, links, routes, where ranks live),
``model`` (what both engines obey: sharing of links, faults, jitter), ``reference`` and ``compiled`` (the engines), and
the modules beside them (a collective, a training, the choice of an algorithm).
"""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
