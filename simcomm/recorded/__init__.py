"""A recorded run in virtual time, on any cluster: one plan of the compiled kernel for all ranks, messages and groups.

Read ``segments.py`` (logs cut where ranks must wait), ``templates.py`` (a collective as messages), ``carriers.py``
(what carries it on a cluster), ``layout.py`` (both as stages of agents), ``messages.py`` and ``run.py``, in this order.
"""
