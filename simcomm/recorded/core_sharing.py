"""Ranks with one core each: what a rank's messages take of it while the rank computes."""

from dataclasses import replace

import numpy as np

from collectives.records.columns import Floats
from collectives.records.recording import Did, LogEntries, Recording
from simcomm.recorded.calls import ReplayedCalls, Segments
from simcomm.recorded.carriers import Way
from simcomm.recorded.templates import Template


def charge_messages_to_cores(
    recording: Recording, segments: Segments, calls: ReplayedCalls, ways: list[Way]
) -> Recording:
    """Return a recording in which computing takes as much longer as collectives keep its core busy meanwhile.

    A hop between processes of one machine is work of the cores of both. A collective that a rank waits for only after
    it has computed takes that work from what is computed next, whose seconds were taken with the core to itself.
    """
    entries = recording.entries
    computing = np.flatnonzero(entries.seconds > 0)
    waits = np.flatnonzero(entries.did == Did.WAIT)
    awaited = np.full(len(recording.calls), -1)
    awaited[entries.number[waits[::-1]]] = waits[::-1]  # the first time
    seconds = entries.seconds.copy()
    for way in ways:
        if way.template is None:
            continue
        parts = np.where(way.parts < len(recording.calls), way.parts, -1)
        rows, member = np.nonzero((parts >= 0) & (segments.post_entry[parts] >= 0))
        call = parts[rows, member]
        following = np.searchsorted(computing, segments.post_entry[call], side="right")
        meanwhile = following < len(computing)
        following[meanwhile] = computing[following[meanwhile]]
        meanwhile &= following <= awaited[call]  # so of the same stream
        np.add.at(seconds, following[meanwhile], _busy_seconds(way.template)[member[meanwhile]])
    extended = LogEntries(
        stream=entries.stream, did=entries.did, number=entries.number, seconds=seconds, took=entries.took
    )
    return replace(recording, entries=extended)


def _busy_seconds(template: Template) -> Floats:
    """Return how long a collective keeps the core of each rank of its group busy; shape [ranks]."""
    messages, ranks = template.messages, template.ranks
    receiving = np.bincount(messages.dst, messages.seconds, ranks)
    reducing = np.bincount(template.agent // template.channels, template.cost, ranks)
    return np.asarray(receiving + reducing + template.division, np.float64)
