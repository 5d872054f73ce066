"""Simulate collectives and training runs on a cluster that you describe.

* ``run`` simulates a collective, ``train`` a training run.
* ``choose`` returns the fastest algorithm.
* ``star``, ``ring``, ``torus``, ``fat_tree``, ``two_level_tree`` and ``fully_connected`` build networks.
* ``preset`` builds machines of the hardware catalog, and ``this_machine`` is your computer.
* ``from_links``, ``from_graph`` and ``read_cluster`` accept your own network.
* ``Faults`` slow down or stop ranks and links.

>>> import simcomm
>>> trace = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), nbytes="1 MiB")
>>> f"{trace.elapsed * 1e3:.2f} ms, {len(trace.messages)} messages"
'1.32 ms, 24 messages'
"""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
