"""Replay a recording in virtual time on any cluster, as one input of the compiled kernel.

Read the modules in this order: ``calls.py`` (logs split where ranks wait), ``templates.py`` (the messages of a
collective), ``carriers.py`` (the performance of a cluster), ``layout.py`` (stages of agents), ``plan.py`` and
``replay.py``.
"""
