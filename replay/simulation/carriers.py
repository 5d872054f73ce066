"""What carries the calls of a recording on a cluster: its network, the memory of this machine, or NCCL.

Each distinct shape and group of a collective is carried one *way*.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.costs.message_classes import EXCHANGE, RELAY, MessageClass
from collectives.declaration import AUTO, NCCL, Algorithm, auto, nccl
from collectives.errors import InputError, Undefined
from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.columns import Bools, Floats, Ints
from collectives.spec import find_spec
from collectives.transport import Transport
from replay.simulation.calls import ReplayedCalls
from replay.simulation.templates import Shape, Template, local_seconds, measured_template, network_template
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.selection import resolve_auto

DEFAULTS = {
    "all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "broadcast": "binomial",
    "reduce": "binomial", "all_to_all": "pairwise", "gather": "naive", "scatter": "naive", "barrier": "dissemination",
}  # fmt: skip
AS_GLOO = {"all_gather": "all_gather", "reduce_scatter": "all_reduce"}  # by what torch does them, with copies
IDLE = 5e-5  # seconds of computing after which the event loop of a rank of this machine sleeps


@dataclass
class NetworkCarrier:
    """Messages over the links of a network, which they share; ``algorithms`` has a name for some collectives."""

    collectives_cross: ClassVar[bool] = True  # links of the network; otherwise messages take their own seconds
    messages_cross: ClassVar[bool] = True  # likewise, messages of a program's own
    has_lines: ClassVar[bool] = False  # whether a group's calls are one after the other though nothing says so
    shares_cores = False  # whether messages take the cores that ranks compute on

    cluster: Cluster
    calibration: Calibration | None = None
    algorithms: Mapping[str, str | Algorithm] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict, init=False)  # sentences, each once
    _chosen: dict[tuple[Shape, tuple[int, ...]], Algorithm] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for collective, name in self.algorithms.items():
            find_spec(collective)
            if name not in (AUTO, NCCL):
                find_algorithm(name, collective)
        self.resolved, transport = resolve_transport(self.cluster, self.calibration)
        self.transport: Transport = replace(transport, tcp=None)
        if transport.tcp is not None:
            self.notes["windows and buffers of TCP are left out: messages share the links of their routes"] = None

    def algorithm(self, shape: Shape, ranks: tuple[int, ...]) -> Algorithm:
        """Return the algorithm of a collective of these ranks; the default where one does not do for so many."""
        name = self.algorithms.get(shape.verb, self.default(shape.verb))
        key = shape, ranks if name == AUTO else ()
        if key not in self._chosen:
            self._chosen[key] = self._choose(name, shape, ranks)
        return self._chosen[key]

    def default(self, verb: str) -> str:
        """Return the name of the algorithm of a collective where none is given."""
        return DEFAULTS[verb]

    def _choose(self, name: str | Algorithm, shape: Shape, ranks: tuple[int, ...]) -> Algorithm:
        if name == NCCL:
            return nccl(shape.verb)
        if name == AUTO:
            group = replace(self.resolved, hosts=tuple(self.resolved.hosts[rank] for rank in ranks))
            call = CollectiveCall(auto(shape.verb), shape.elements, op=shape.op, root=shape.root)
            return resolve_auto(call, group, self.calibration).algorithm
        found, instead = find_algorithm(name, shape.verb), DEFAULTS[shape.verb]
        try:
            network_template(found, fitted(shape, found), 0.0)
        except (Undefined, InputError) as error:
            if name == instead:
                raise
            self.notes[f"{shape.verb} of {shape.ranks} ranks by {instead}, not {name}: {error}"] = None
            return find_algorithm(instead, shape.verb)
        return found

    def seconds_inside(self, shape: Shape, ranks: tuple[int, ...]) -> float | None:
        """Return what a backend takes that does the collective inside, from when the last rank has come; else None."""
        return None

    def template(self, shape: Shape, ranks: tuple[int, ...]) -> Template:
        """Return a collective as messages."""
        algorithm = self.algorithm(shape, ranks)
        return network_template(algorithm, fitted(shape, algorithm), self.transport.gamma)

    def message_seconds(self, pairs: Ints, nbytes: Floats, exchanges: Bools, computed: Floats) -> Floats:
        """Return what messages of a program's own take beside their links.

        ``pairs`` [messages, 2] are their ranks; ``exchanges`` says which come while their ranks send the other way, and
        ``computed`` for how long the ranks had computed before.
        """
        return np.zeros(len(nbytes))


class MeasuredCarrier(NetworkCarrier):
    """Processes of this machine: a message takes what its class took in the calibration."""

    collectives_cross = messages_cross = False

    @cached_property
    def message_costs(self) -> Calibration:
        """The calibration, which has message classes. Raises InputError where it has none."""
        found = self.calibration or cached_calibration(self.cluster.world_size)
        if not found.message_classes and self.cluster.world_size > 1:
            raise InputError("the calibration has no message classes; make one with `ringlab calibrate`")
        return found

    @property
    def shares_cores(self) -> bool:  # type: ignore[override]
        """Whether ranks keep all cores busy, so that messages take the cores that ranks compute on."""
        return self.cluster.world_size >= int(self.message_costs.environment.get("cores", 1))

    def template(self, shape: Shape, ranks: tuple[int, ...]) -> Template:
        done_as = AS_GLOO.get(shape.verb, shape.verb) if shape.verb not in self.algorithms else shape.verb
        algorithm = self.algorithm(shape._replace(verb=done_as), ranks)
        found = measured_template(algorithm, fitted(shape, algorithm), self.message_costs)
        if shape.verb not in AS_GLOO or shape.verb in self.algorithms:
            return found
        nbytes = shape.elements * shape.itemsize
        copies = sum(local_seconds(self.message_costs, part) for part in (nbytes, nbytes // shape.ranks))
        self.notes[
            "all_gather and reduce_scatter copy the whole buffer, and reduce all of it, as torch on gloo does"
        ] = None
        return replace(found, division=found.division + copies)

    def message_seconds(self, pairs: Ints, nbytes: Floats, exchanges: Bools, computed: Floats) -> Floats:
        kinds, which = np.unique(
            np.stack([nbytes.astype(np.int64), exchanges, computed > IDLE], axis=1), axis=0, return_inverse=True
        )
        message_classes = (
            MessageClass(EXCHANGE if both else RELAY, 1, False, size, bool(first))
            for size, both, first in kinds.tolist()
        )
        seconds: Floats = np.array(
            [self.message_costs.message_seconds(message_class) for message_class in message_classes]
        )[which.reshape(-1)]
        return seconds


def fitted(shape: Shape, algorithm: Algorithm) -> Shape:
    """Return the shape with as many elements as the algorithm can work on: more, where chunks must be equal."""
    elements = max(shape.elements, int(algorithm.spec.repeats))
    chunks = algorithm.chunks(shape.ranks) if algorithm.needs_equal_chunks else 1
    return shape._replace(elements=-(-elements // chunks) * chunks)


class Way(NamedTuple):
    """Collectives that are carried alike: as messages of a template or, without one, inside of a backend."""

    template: Template | None
    seconds: float  # of what goes on inside, from when the last rank has come
    collectives: Ints  # their numbers
    parts: Ints  # [collectives, ranks]: calls


def find_ways(calls: ReplayedCalls, carrier: NetworkCarrier) -> list[Way]:
    """Return the ways of all collectives. Raise InputError for what a carrier cannot carry."""
    pairs = np.stack([calls.shape, calls.group], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    kinds: dict[object, tuple[Template | None, float, list[int]]] = {}
    for number, (shape, group) in enumerate(distinct.tolist()):
        asked = calls.shapes[shape], calls.groups[group]
        inside = carrier.seconds_inside(*asked)
        template = carrier.template(*asked) if inside is None else None
        key = id(template) if template is not None else (inside, asked[0].ranks)
        kinds.setdefault(key, (template, inside or 0.0, []))[2].append(number)
    ways = []
    for template, seconds, numbers in kinds.values():
        collectives = np.flatnonzero(np.isin(which.reshape(-1), numbers))
        width = calls.first_part[collectives[0] + 1] - calls.first_part[collectives[0]]
        parts = calls.parts[calls.first_part[collectives][:, None] + np.arange(width)]
        ways.append(Way(template, seconds, collectives, parts))
    return ways
