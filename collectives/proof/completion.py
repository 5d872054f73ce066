"""Find an order in which the steps of all ranks complete, or the ranks that wait for each other in a cycle.

The order assumes rendezvous: a send or a receive completes only after both are posted. A program that completes under
this assumption needs no buffering in any backend. Messages are matched statically, so the proof of one order holds for
all.
"""

from collections.abc import Iterator

import numpy as np

from collectives.errors import Deadlock
from collectives.schedule.schedule import Schedule

Meeting = tuple[int, int, int]  # actor and step of the matching send or receive; index of this one


def completion_order(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Yield (rank, channel, step) for each step, in an order in which the steps can complete.

    A step is posted when the previous step of its channel is complete. It completes when all sends and receives that
    match its operations are posted. Raise Deadlock if some steps never complete.

    >>> from collectives import find_algorithm
    >>> from collectives.schedule.build import build_schedule
    >>> list(completion_order(build_schedule(find_algorithm("reduce/naive"), 2)))
    [(1, 0, 0), (0, 0, 0)]
    """
    for rank, channel, step, _ in completion_depths(schedule):
        yield rank, channel, step


def completion_depths(schedule: Schedule) -> Iterator[tuple[int, int, int, int]]:
    """Yield (rank, channel, step, depth) for each step, in an order in which the steps can complete.

    The depth of a step is the number of messages in the longest chain of dependent messages that ends with it. A
    message depends on the messages that its sender and its receiver completed in earlier steps of the same channel.
    Raise Deadlock if some steps never complete.
    """
    actors = [(rank, channel) for rank, channels in enumerate(schedule.programs) for channel in range(len(channels))]
    meetings = _meetings(schedule, {actor: number for number, actor in enumerate(actors)})
    position = [0] * len(actors)
    depths = [[0] for _ in actors]  # the depth before each step
    ready = list(range(len(actors)))
    while ready:
        actor = ready.pop()
        steps = meetings[actor]
        at = position[actor]
        while at < len(steps) and _all_posted(steps[at], position):
            actor_depths = depths[actor]
            depth = actor_depths[at]
            for peer, step, _ in steps[at]:
                before = depths[peer][step]
                if before > depth:
                    depth = before
            if steps[at]:
                depth += 1
            actor_depths.append(depth)
            yield *actors[actor], at, depth
            position[actor] = at = at + 1
            if at < len(steps):
                ready += [peer for peer, step, _ in steps[at] if position[peer] == step]
    if any(at < len(steps) for at, steps in zip(position, meetings, strict=True)):
        raise _deadlock(schedule, actors, position, meetings)


def _all_posted(meetings: list[Meeting], position: list[int]) -> bool:
    for actor, step, _ in meetings:  # noqa: SIM110 (asked of every step, and `all` takes three times as long)
        if position[actor] < step:
            return False
    return True


def _meetings(schedule: Schedule, number: dict[tuple[int, int], int]) -> list[list[list[Meeting]]]:
    """Return the operations on other ranks that each step waits for; shape [rank and channel][step]."""
    meetings: list[list[list[Meeting]]] = [
        [[] for _ in program] for channels in schedule.programs for program in channels
    ]
    steps = schedule.step.tolist()
    actor = [number[key] for key in zip(schedule.rank.tolist(), schedule.channel.tolist(), strict=True)]
    for index, match in enumerate(schedule.match.tolist()):
        if match >= 0:
            meetings[actor[index]][steps[index]].append((actor[match], steps[match], index))
    for index in np.flatnonzero((schedule.match < 0) & (schedule.peer >= 0)).tolist():  # in wrong programs
        owner = actor[index]
        meetings[owner][steps[index]].append((owner, len(meetings[owner]), index))
    return meetings


def _deadlock(
    schedule: Schedule, actors: list[tuple[int, int]], position: list[int], meetings: list[list[list[Meeting]]]
) -> Deadlock:
    blocking = {
        actor: next(met for met in meetings[actor][at] if position[met[0]] < met[1])
        for actor, at in enumerate(position)
        if at < len(meetings[actor])
    }
    circle: list[int] = []
    actor = min(blocking)
    while actor not in circle:
        circle.append(actor)
        actor = blocking[actor][0]
    circle = circle[circle.index(actor) :]
    waits = "; ".join(_wait(schedule, actors, actor, position[actor], blocking[actor]) for actor in circle)
    ranks = tuple(actors[actor][0] for actor in circle)
    advice = "Put operations that must overlap into one step: yield send(...), recv(...)"
    message = f"{schedule.describe()}: deadlock: {waits}. {advice}"
    return Deadlock(message, schedule.world_size, ranks, position[circle[0]])


def _wait(schedule: Schedule, actors: list[tuple[int, int]], actor: int, step: int, met: Meeting) -> str:
    (rank, channel), peer = actors[actor], actors[met[0]][0]
    where = f"step {step} of channel {channel}" if schedule.channels > 1 else f"step {step}"
    line = schedule.at_line(rank, channel, step)
    return f"rank {rank} in {where}{line} waits for rank {peer} in {schedule.operation(met[2])}"
