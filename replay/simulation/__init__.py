"""Replay a recording in virtual time on any cluster, as one input of the compiled kernel.

Read the modules in this order: ``calls.py`` (logs split where ranks wait), ``templates.py`` (a collective as messages),
``carriers.py`` (how a cluster carries it), ``layout.py`` (both as stages of agents), ``plan.py`` and ``replay.py``.
"""
