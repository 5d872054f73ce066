"""Recordings of real or virtual runs, replayed in virtual time on another cluster: a wing built on the core.

``recording.py`` is the file format, ``capture/`` records real ranks, ``formats/`` reads and writes the formats of
others, and ``simulation/`` finds the times of a recording's calls on a cluster.
"""
