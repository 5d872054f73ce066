"""What is to be sent, as arrays of records that the event engine reads."""

from typing import NamedTuple

import numpy as np

from simcomm.compiled.routes import Floats, Ints, Records

NONE, NOBODY = np.zeros(0), np.zeros(0, np.int32)
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
    """What is to be sent, numbered step by step. ``stages`` and ``messages`` also keep how far a run has come."""

    stages: Records  # STAGE, and one more for the end of its ops
    messages: Records  # MESSAGE
    ops: Ints  # messages
    cost: Floats  # [stages]: seconds of computing after the messages; [0] where there is none
    extra: Floats  # [messages]: seconds of delay on top of the route's; [0] where there is none
    first_stage: Ints  # [agents]; -1 for one that has nothing to do
    fails_at: Floats = NONE  # [agents]: seconds from which on it starts nothing; [0] where none fails
    turn: Ints = NOBODY  # [messages]: who of those that came at one instant is first; [0] where links are shared


def begun_at(plan: Plan, starts: Floats) -> Plan:
    """The same with agents that begin at these seconds: each has one stage more, in which it only lets them pass."""
    stages, agents = len(plan.stages) - 1, len(plan.first_stage)
    later = np.zeros(stages + agents + 1, STAGE)
    later[:stages] = plan.stages[:-1]
    later["first_op"][stages:] = len(plan.ops)
    later["agent"][stages:-1], later["following"][stages:-1] = np.arange(agents), plan.first_stage
    cost = plan.cost if len(plan.cost) else np.zeros(stages)
    first_stage = np.arange(stages, stages + agents, dtype=np.int32)
    return plan._replace(stages=later, cost=np.concatenate([cost, starts]), first_stage=first_stage)
