"""Events that lie close together taken as one: for messages that all differ, at a share of the time, with its error.

Where hundreds of messages share links and no two end together, each of them changes the rates of all others, and to be
exact takes as many corrections. Here everything within a short window happens in its middle, and rates are found once
for all of it. A second run with longer windows says how much that may matter.
"""

import numpy as np

from simcomm.compiled.engine import one_by_one
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.timing import Timing

AIM = 5e-4  # of the time that the fullest link needs, by which all windows on the longest chain of steps may err
COARSER = 8  # how many times as long the windows are of the run by which the error is found


def approximately(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Return the timing by events in windows, with the error that it may have; whoever asks has tried the shortcuts.

    The error is half of how far a run with windows eight times as long is from this one, and at least two windows for
    each message of a chain. Where only one of the two ends, nothing tells how wrong the other is, and the exact timing
    is returned. ``messages`` asks for the times of each. Raises what ``simulate`` raises.
    """
    window = window_seconds(inputs.with_table())
    found = one_by_one(inputs, messages=messages, window=window)
    coarser = one_by_one(inputs, window=COARSER * window)
    if np.isinf(found.elapsed) != np.isinf(coarser.elapsed):
        return one_by_one(inputs, messages=messages)
    off = coarser.elapsed - found.elapsed if np.isfinite(found.elapsed) else 0.0
    return found._replace(error=max(2 * window * _chain(inputs.schedule.steps), abs(off) / 2))


def window_seconds(inputs: EngineInput) -> float:
    """Return how long a window is: a share of the time that the fullest link needs, by the messages of a chain."""
    messages, routes = inputs.schedule_plan.plan.messages, inputs.routes
    sent = np.bincount(messages["route"], messages["nbytes"], len(routes.delay))
    of_hops = np.repeat(sent, np.diff(routes.first_hop)) * routes.hop_weight
    carried = np.bincount(routes.hop_link, of_hops, len(routes.alone))
    capacity = np.maximum(routes.alone, routes.shared)
    least = (carried[capacity > 0] / capacity[capacity > 0]).max(initial=0.0)
    return AIM * float(least) / _chain(inputs.schedule.steps)


def _chain(steps: int) -> int:
    """Return about how many messages wait for each other one by one: those of a rank's steps, and of other ranks'."""
    return 1 if steps <= 1 else 4 * steps
