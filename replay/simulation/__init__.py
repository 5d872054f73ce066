"""Replay a recording in virtual time on any cluster, with a single run of the compiled kernel.

Read the modules in this order: ``calls.py`` splits logs where ranks wait, ``templates.py`` lists the messages of a
collective, ``carriers.py`` computes their times on a cluster, ``layout.py`` arranges stages of agents, ``plan.py``
makes the kernel's input, and ``replay.py`` computes the result.
"""
