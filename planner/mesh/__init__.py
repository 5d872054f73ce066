"""A training step on a mesh of devices: how long it takes, and what each device keeps in memory.

Read ``job.py`` first, what is asked, and ``prediction.py``, what is answered; then ``step.py``, which puts it together:
``compute.py`` says how long a device computes on each layer, ``layers.py`` what it has of the model and exchanges
within it, ``memory.py`` what it keeps, ``calls.py`` what a collective is,
``interconnect.py`` what each takes, ``sync.py`` and ``pipeline.py`` what the streams of a device do
(``simcomm/timeline.py``), ``terms.py`` what several GPUs add, by parameters that are fitted to published trainings, and
``intervals.py`` how far off all this may be. Data parallelism is the mesh of data alone.
"""
