"""Predict NCCL from a system description.

``descriptions``, ``catalogue`` and ``settings`` describe a machine and a run. ``topology`` and ``communicator`` find
the paths between its GPUs. ``channels``, ``rings``, ``choice`` and ``tuner`` are NCCL's decisions, ``timing`` and
``parameters`` the time, and ``predict`` all of it for one call.
"""
