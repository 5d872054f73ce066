"""What NCCL would do on a described system, as the data goes: a description, links, rings and trees, and time.

``descriptions`` (with ``catalogue`` and ``settings``) says what a machine is; ``topology`` and ``communicator`` say how
its GPUs reach each other; ``channels``, ``rings``, ``choice`` and ``tuner`` what NCCL makes of that; ``timing`` what it
takes, by ``parameters``; ``predict`` is all of it for one call, with ``intervals``.
"""
