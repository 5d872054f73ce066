"""Predict NCCL from a system description.

``descriptions``, ``catalogue`` and ``settings`` describe a machine and a run. ``topology`` and ``communicator`` find
the paths between GPUs. ``channels``, ``rings``, ``choice`` and ``tuner`` reproduce NCCL's decisions. ``timing`` and
``parameters`` compute times, and ``predict`` combines all of this for one call.
"""
