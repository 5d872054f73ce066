"""Logical time: the column in which each message stands when steps are drawn in place of seconds."""

import numpy as np

from collectives.records.columnar import Ints
from collectives.records.messages import Messages


def find_depths(messages: Messages) -> Ints:
    """Return the depth of each message: how many come before it on the longest chain of program steps.

    A message comes before another if either rank had it in an earlier step of the same program. Times say nothing
    here: in a real run a message may arrive before one of an earlier step. What waits for itself, as no run has it,
    has depth 0.
    """
    sent, received, following = _program_steps(messages)
    steps, number = len(following), len(messages)
    ends = np.concatenate([sent, received])
    in_step = (np.argsort(ends, kind="stable") % max(number, 1)).tolist()  # the messages of each program step
    left_in = np.bincount(ends, minlength=steps)
    first = np.append(0, np.cumsum(left_in)).tolist()
    left: list[int] = left_in.tolist()
    before, most = [-1] * steps, [-1] * steps  # depths until a step, and with it
    depths, has_begun = [0] * number, [False] * number  # by one of its two ranks
    begun = np.setdiff1d(np.arange(steps), following).tolist()  # first steps of programs, then those that follow
    sender, receiver, follows = sent.tolist(), received.tolist(), following.tolist()
    while begun:
        step = begun.pop()
        for message in in_step[first[step] : first[step + 1]]:
            if not has_begun[message]:
                has_begun[message] = True
                continue
            one, other = sender[message], receiver[message]
            depths[message] = depth = 1 + max(before[one], before[other])
            for end in (one, other):
                most[end] = max(most[end], depth)
                left[end] -= 1
                if not left[end] and follows[end] >= 0:
                    after = follows[end]
                    before[after] = most[after] = most[end]
                    begun.append(after)
    return np.array(depths, np.int64)


def _program_steps(messages: Messages) -> tuple[Ints, Ints, Ints]:
    """Return the program steps in which each message was sent and received, by number, and the next one after each.

    A program is a channel of a rank; its steps are those with messages, and collectives follow each other. After the
    last of a program there is -1.
    """
    ranks = int(max(messages.src.max(initial=0), messages.dst.max(initial=0))) + 1
    steps = int(max(messages.step.max(initial=0), messages.dst_step.max(initial=0))) + 1
    steps_in_all = steps * (int(messages.collective.max(initial=0)) + 1)
    program, before_it = messages.channel * ranks, messages.collective * steps
    sent = (program + messages.src) * steps_in_all + before_it + messages.step
    received = (program + messages.dst) * steps_in_all + before_it + messages.dst_step
    codes, number = np.unique(np.concatenate([sent, received]), return_inverse=True)
    following = np.arange(1, len(codes) + 1)
    is_last = np.diff(codes // steps_in_all, append=-1) != 0
    following[is_last] = -1
    return number[: len(messages)], number[len(messages) :], following
