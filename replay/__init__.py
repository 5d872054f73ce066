"""Replay recordings of real or virtual runs in virtual time on another cluster.

``recording.py`` is the file format, ``capture/`` records real ranks, ``formats/`` reads and writes other formats, and
``simulation/`` computes the times of a recording's calls on a cluster.

>>> import replay
>>> recording = replay.read_recording("run.recording.json")  # doctest: +SKIP
>>> replay.replay(recording, simcomm.star(8, "10 Gbit/s", "5 us")).elapsed  # doctest: +SKIP
0.0123
"""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
