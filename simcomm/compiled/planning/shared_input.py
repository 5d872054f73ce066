"""Inputs of one program that differ in sizes, bandwidths and latencies: what is the same is worked out once.

A plan, pairs, routes and which links are private do not depend on how fast links are, as long as routes do not. So they
are handed from one input to the next, and the answers are the same to the last bit.
"""

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

from collectives.request import Request
from collectives.schedule.symbolic_build import AnySchedule
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.complete import complete_links
from simcomm.cluster.routing import ListedRouter, RailAwareRouter, ShortestRouter, rail_aware, shortest
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import with_speeds
from simcomm.compiled.planning.schedule_plan import SchedulePlan

SPEEDS = {"bandwidth", "shared_bandwidth", "usable_bandwidth", "latency"}
KNOWN_ROUTING = (shortest, rail_aware, ShortestRouter, RailAwareRouter, ListedRouter)  # see bandwidths by their ratios


class SharedInputs:
    """The inputs of one schedule without trouble, one after the other."""

    def __init__(self, schedule: AnySchedule, *, keeps_plans: bool = True) -> None:
        """Take the schedule; ``keeps_plans`` where requests of one size come again."""
        self.schedule = schedule
        self._last: EngineInput | None = None
        self._plans: dict[tuple[int, int, float], SchedulePlan] = {}
        # messages of all plans that are kept
        self._keeps = 1_000_000 // max(1, schedule.messages) if keeps_plans else 0

    def next(self, request: Request, cluster: Cluster, transport: Transport) -> EngineInput:
        """Return the input of a request, with all that it has in common with the one before."""
        self._keep_plan()
        found = EngineInput(request, self.schedule, cluster, transport)
        if request.elements < self.schedule.chunks:  # empty messages are not sent, so that pairs and plan are others
            return found
        known, last = found.known, self._last
        plan = self._plans.get(_plan_key(found))
        if plan is not None:
            known["schedule_plan"] = plan
        if last is not None and last.cluster is cluster and last.transport == transport:
            _hand_on(last, known, ("pairs", "found_routes", "private", ("link_records", ())))
        elif last is not None and "found_routes" in last.known and same_paths(last.cluster, cluster):
            _hand_on(last, known, ("pairs", "private"))
            known["found_routes"] = with_speeds(last.found_routes, cluster, transport)
        self._last = found
        return found

    def _keep_plan(self) -> None:
        """Keep the plan that the last input was simulated by, if it was and not too much is kept."""
        plan = self._last.known.get("schedule_plan") if self._last is not None else None
        if self._last is not None and plan is not None and len(self._plans) < self._keeps:
            self._plans[_plan_key(self._last)] = plan


def _plan_key(found: EngineInput) -> tuple[int, int, float]:
    return found.request.elements, found.request.itemsize, found.transport.gamma


def _hand_on(last: EngineInput, known: dict[Any, Any], names: tuple[Any, ...]) -> None:
    known.update({name: last.known[name] for name in names if name in last.known})


def same_paths(one: Cluster, other: Cluster) -> bool:
    """Return whether both clusters certainly route alike: the same but for latencies and the unit of bandwidth.

    >>> import simcomm
    >>> tree, wider, other = (simcomm.two_level_tree(2, 2, "1 GB/s", "1 us", over) for over in (1, 1, 4))
    >>> same_paths(tree, wider), same_paths(tree, other)
    (True, False)
    """
    if one.hosts != other.hosts or _policy(one.routing) is None or _policy(one.routing) != _policy(other.routing):
        return False
    if list(one.graph.nodes(data=True)) != list(other.graph.nodes(data=True)):
        return False
    if complete_links(one.graph) is not None and complete_links(other.graph) is not None:
        return True
    edges = [list(cluster.graph.edges(data=True)) for cluster in (one, other)]
    if len(edges[0]) != len(edges[1]):
        return False
    widths: dict[float, float] = {}
    for (src, dst, data), (src_there, dst_there, there) in zip(*edges, strict=True):
        if (src, dst) != (src_there, dst_there) or _beside_speeds(data) != _beside_speeds(there):
            return False
        if widths.setdefault(data["bandwidth"], there["bandwidth"]) != there["bandwidth"]:
            return False
    # each is compared with each
    return len(widths) <= 16 and all(a / b == widths[a] / widths[b] for a, b in product(widths, repeat=2) if a != b)


def _beside_speeds(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in SPEEDS}


def _policy(routing: Any) -> tuple[Any, ...] | None:
    """Return what tells a policy of ours from others; None of a user's own, which may look at anything."""
    if isinstance(routing, partial):
        inner = _policy(routing.func)
        policies = [value for value in (*routing.args, *routing.keywords.values()) if callable(value)]
        if inner is None or any(_policy(value) is None for value in policies):
            return None
        return (*inner, routing.args, tuple(sorted(routing.keywords.items(), key=str)))
    return (routing,) if routing in KNOWN_ROUTING else None
