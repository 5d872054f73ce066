"""Draw the trace of a run, a network topology, or results such as scaling curves.

* ``draw`` writes a trace in the format of the file's suffix. It calls ``write_player`` (.html), ``animate`` (.gif),
  ``space_time_figure`` (.png, .svg, .pdf) or ``write_perfetto`` (.perfetto.json).
* Functions named ``..._figure`` return a matplotlib figure, which ``write_figure`` saves.

>>> import simcomm, viz
>>> trace = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), nbytes="1 MiB")
>>> viz.space_time_figure(trace).texts[0].get_text()
'all_reduce/ring'

Each function is imported at its first use, together with the drawing libraries that it needs.
"""

from collectives import exports_of

__getattr__, __dir__, __all__ = exports_of(__name__)
