"""A recorded run in virtual time, on any cluster: one input of the compiled kernel for all ranks, messages and groups.

Read ``calls.py`` (logs cut where ranks must wait), ``templates.py`` (a collective as messages), ``carriers.py`` (what
carries it on a cluster), ``layout.py`` (both as stages of agents), ``plan.py`` and ``replay.py``, in this order.
"""
