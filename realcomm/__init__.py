"""Run collectives and training runs on real processes, which Ringlab starts on this machine or torchrun has started.

* ``run`` measures a collective, ``train`` trains a model, ``calibrate`` measures this machine for predictions.
* ``emulate`` creates a cluster's network on this machine, for the other functions to run on.
* ``launch`` calls any function on each rank. ``set_status`` and ``report_progress`` report the rank's activity.
* ``all_reduce`` and eleven other collectives work on tensors in any process of a torch.distributed group.
  ``classroom`` has four of them for a first exercise, called with the rank and the world size.
* ``execute`` and ``Executor`` run any rank program on a tensor.
* ``RunFailed`` is raised when a run fails: ``RankFailed`` if a rank fails, ``TimedOut`` if the time runs out.

>>> import numpy as np
>>> import realcomm, simcomm
>>> buffers = [np.array([1.0, 2.0]), np.array([10.0, 20.0])]
>>> trace = realcomm.run("all_reduce/ring", simcomm.this_machine(ranks=2), buffers=buffers)
>>> buffers[0].tolist(), trace.elapsed > 0
([11.0, 22.0], True)

Importing realcomm does not import torch. The first use of a function that needs torch does.
"""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
