"""The timing of a collective over TCP."""

import numpy as np

from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.tcp.run import TcpRun
from simcomm.compiled.timing import MessageTimes, PostTimes, Timing


def simulate_tcp(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Return the timing of a request whose transport has TCP terms; with ``messages`` the times of each.

    Shortcuts know nothing of connections, so that it is always found by events. Raises InputError for more messages or
    segments than fit into memory. A rank that waits for ever finishes at infinity.
    """
    inputs = inputs.with_table()
    run = TcpRun([inputs])
    timing = Timing(float(run.finished.max(initial=0.0)), run.finished, inputs.sent, "events")
    return with_messages(timing, inputs, run)._replace(reductions=run.plan.spans(run.done)) if messages else timing


def with_messages(timing: Timing, inputs: EngineInput, run: TcpRun) -> Timing:
    """Return the timing of a collective of a run with the times of its messages."""
    sent, received, end = run.message_times(inputs)
    nbytes = inputs.schedule_plan.plan.messages["nbytes"].copy()
    times = MessageTimes(*inputs.names, nbytes, np.maximum(sent, received), end)
    return timing._replace(times=times, posted=PostTimes(sent, received))
