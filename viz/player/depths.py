"""Logical time: the column in which each message stands when steps are drawn in place of seconds."""

import numpy as np
import numpy.typing as npt

from collectives.records.message_arrays import MessageArrays

Ints = npt.NDArray[np.int64]


def find_depths(messages: MessageArrays) -> Ints:
    """Return the depth of each message: how many come before it on the longest chain of program steps.

    A message comes before another if either rank had it in an earlier step of the same program. Messages must be
    sorted by ``begin``.
    """
    ranks = int(max(messages.src.max(initial=0), messages.dst.max(initial=0))) + 1
    channel = messages.channel * ranks
    steps = int(max(messages.step.max(initial=0), messages.dst_step.max(initial=0))) + 1
    before_it = messages.collective * steps  # the collectives of a training follow each other
    columns = (
        channel + messages.src, channel + messages.dst, before_it + messages.step, before_it + messages.dst_step
    )  # fmt: skip
    programs = int(channel.max(initial=0)) + ranks
    step, most, before = [-1] * programs, [-1] * programs, [-1] * programs  # of each program: now, now, and until then
    depths = np.empty(len(messages.src), np.int64)
    for index, (sender, receiver, sent_in, received_in) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        for program, own in ((sender, sent_in), (receiver, received_in)):
            if own != step[program]:
                step[program], before[program] = own, max(before[program], most[program])
        depth = 1 + max(before[sender], before[receiver])
        depths[index] = depth
        most[sender], most[receiver] = max(most[sender], depth), max(most[receiver], depth)
    return depths
