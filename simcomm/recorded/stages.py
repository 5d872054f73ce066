"""Agents and their stages, signals, and what computes: what the layout of a replay puts together."""

from typing import NamedTuple

import numpy as np

from collectives.records.columns import Floats, Ints

NO_RANK = -1  # of an agent that belongs to no rank


class Tasks(NamedTuple):
    """Stages that compute; one entry of each array for each."""

    stage: Ints
    seconds: Floats
    rank: Ints
    number: Ints  # the collective's key; of what a program computes the stream
    channel: Ints  # of a reduction its channel, else DIVISION or PROGRAM
    step: Ints  # of what a program computes which entry of its stream's log it comes before
    entry: Ints  # that entry's number in the recording, which of a tail is behind the last; of others NO_RANK


class Stages:
    """Agents so far, each with stages that follow each other.

    >>> stages = Stages()
    >>> stages.add(np.array([0, 1]), np.array([2, 3])).tolist(), stages.agent().tolist()
    ([0, 2], [0, 0, 1, 1, 1])
    """

    def __init__(self) -> None:
        self.number = 0
        self._ranks: list[Ints] = []
        self._lengths: list[Ints] = []
        self._signals: list[tuple[Ints, Ints]] = []
        self._work: list[Tasks] = []

    def add(self, ranks: Ints, lengths: Ints | int) -> Ints:
        """Add agents of these ranks, with so many stages each; return the first stage of each."""
        each = np.broadcast_to(np.asarray(lengths, np.int64), (len(ranks),))
        first: Ints = self.number + np.cumsum(each) - each
        self._ranks.append(ranks)
        self._lengths.append(each)
        self.number += int(each.sum())
        return first

    def signal(self, source: Ints, sink: Ints) -> None:
        """Let each sink go on when its source has begun; sources must not begin before sinks may wait for them."""
        self._signals.append((source, sink))

    def compute(self, work: Tasks) -> None:
        """Let stages compute after their messages."""
        takes = work.seconds > 0
        self._work.append(Tasks._make(np.broadcast_to(column, takes.shape)[takes] for column in work))

    def agent(self) -> Ints:
        """Return the agent of each stage."""
        lengths = np.concatenate([*self._lengths, np.zeros(0, np.int64)])
        return np.repeat(np.arange(len(lengths)), lengths)

    def ranks(self) -> Ints:
        """Return the rank of each agent."""
        return np.concatenate([*self._ranks, np.zeros(0, np.int64)])

    def signals(self) -> tuple[Ints, Ints]:
        """Return the source and sink of each signal."""
        pairs = [np.stack(np.broadcast_arrays(*pair)) for pair in self._signals]
        sources, sinks = np.concatenate([*pairs, np.zeros((2, 0), np.int64)], axis=1)
        return sources, sinks

    def work(self) -> Tasks:
        """Return all that computes."""
        empty = Tasks._make(np.zeros(0, np.float64 if name == "seconds" else np.int64) for name in Tasks._fields)
        return Tasks._make(map(np.concatenate, zip(empty, *self._work, strict=True)))
