"""What is to be sent and computed, as arrays of records that the kernel runs."""

from typing import NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import Floats, Ints, Records

NO_FLOATS, NO_INTS = np.zeros(0), np.zeros(0, np.int32)
STAGE = np.dtype(
    [
        ("first_op", "i4"),  # its messages are ops[first_op of it : first_op of the next stage]
        ("waiting", "i4"),  # messages that are not through
        ("agent", "i4"),
        ("following", "i4"),  # the agent's next stage; -1 after its last
    ],
    align=True,
)
MESSAGE = np.dtype(
    [
        ("source", "i4"), ("sink", "i4"),  # the stages that send and receive it
        ("route", "i4"),
        ("posted", "i4"),  # 1 when one half is there, 2 when both are and it is about to begin, and then 1 again
        ("nbytes", "f8"),
    ],
    align=True,
)  # fmt: skip


class Plan(NamedTuple):
    """Agents, the stages that each goes through in order, and the messages between stages.

    ``stages`` and ``messages`` also hold how far a run has come; ``new_world`` resets that.
    """

    stages: Records  # STAGE, and one more for the end of its ops
    messages: Records  # MESSAGE
    ops: Ints  # numbers of messages, by stage
    cost: Floats  # [stages]: seconds of computing after the messages; [0] where there is none
    extra: Floats  # [messages]: seconds of delay on top of the route's; [0] where there is none
    first_stage: Ints  # [agents]; -1 for one that has nothing to do
    fails_at: Floats = NO_FLOATS  # [agents]: seconds from which on it starts nothing; [0] where none fails
    arrival_order: Ints = NO_INTS  # [messages]: who of those that come at one instant is first; [0] if links are fair
