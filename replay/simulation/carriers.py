"""Compute how long the calls of a recording take: over a network, between processes on this machine, or with NCCL.

A *call class* contains all collectives with the same template or duration, so one simulation input describes them.
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
AS_GLOO = {"all_gather": "all_gather", "reduce_scatter": "all_reduce"}  # torch's implementations, which copy buffers
IDLE = 5e-5  # seconds of computing after which a rank's event loop sleeps


@dataclass
class NetworkCarrier:
    """Simulates messages over the links of a network, whose bandwidth they share.

    ``algorithms`` maps collectives to the algorithms, or their names, that replace the defaults.
    """

    collectives_cross: ClassVar[bool] = True  # whether collectives' messages cross links or have fixed times
    messages_cross: ClassVar[bool] = True  # the same for recorded sends and receives
    has_lines: ClassVar[bool] = False  # whether a group's calls run in order even without a line in the recording
    shares_cores = False  # whether messages use the cores on which ranks compute

    cluster: Cluster
    calibration: Calibration | None = None
    algorithms: Mapping[str, str | Algorithm] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict, init=False)  # unique sentences
    _chosen: dict[tuple[Shape, tuple[int, ...]], Algorithm] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for collective, name in self.algorithms.items():
            find_spec(collective)
            if name not in (AUTO, NCCL):
                find_algorithm(name, collective)
        self.resolved, transport = resolve_transport(self.cluster, self.calibration)
        self.transport: Transport = replace(transport, tcp=None)
        if transport.tcp is not None:
            self.notes["TCP's windows and buffers are not simulated: messages share the links of their routes"] = None

    def algorithm(self, shape: Shape, ranks: tuple[int, ...]) -> Algorithm:
        """Return the chosen algorithm of a collective. If it does not support the ranks, return the default."""
        name = self.algorithms.get(shape.verb, self.default(shape.verb))
        key = shape, ranks if name == AUTO else ()
        if key not in self._chosen:
            self._chosen[key] = self._choose(name, shape, ranks)
        return self._chosen[key]

    def default(self, verb: str) -> str:
        return DEFAULTS[verb]

    def _choose(self, name: str | Algorithm, shape: Shape, ranks: tuple[int, ...]) -> Algorithm:
        if name == NCCL:
            return nccl(shape.verb)
        if name == AUTO:
            group = replace(self.resolved, hosts=tuple(self.resolved.hosts[rank] for rank in ranks))
            call = CollectiveCall(auto(shape.verb), shape.elements, op=shape.op, root=shape.root)
            return resolve_auto(call, group, self.calibration).algorithm
        algorithm, default = find_algorithm(name, shape.verb), DEFAULTS[shape.verb]
        try:
            network_template(algorithm, fitted(shape, algorithm), 0.0)
        except (Undefined, InputError) as error:
            if name == default:
                raise
            self.notes[f"{shape.verb} on {shape.ranks} ranks uses {default}, not {name}: {error}"] = None
            return find_algorithm(default, shape.verb)
        return algorithm

    def seconds_inside(self, shape: Shape, ranks: tuple[int, ...]) -> float | None:
        """Return the seconds that the collective takes after its last rank has entered.

        None means that the collective's messages are simulated instead.
        """
        return None

    def template(self, shape: Shape, ranks: tuple[int, ...]) -> Template:
        algorithm = self.algorithm(shape, ranks)
        return network_template(algorithm, fitted(shape, algorithm), self.transport.gamma)

    def message_seconds(self, pairs: Ints, nbytes: Floats, exchanges: Bools, computed: Floats) -> Floats:
        """Return the seconds that each recorded message takes in addition to its time on links.

        ``pairs`` [messages, 2] are the sender and the receiver. ``exchanges`` marks messages whose ranks also send in
        the other direction at the same time. ``computed`` is how long the ranks computed before the message, in
        seconds.
        """
        return np.zeros(len(nbytes))


class MeasuredCarrier(NetworkCarrier):
    """Simulates processes on this machine. Messages take the times that a calibration measured."""

    collectives_cross = messages_cross = False

    @cached_property
    def message_costs(self) -> Calibration:
        """The given calibration, or this machine's cached calibration if none was given.

        Raise InputError if the calibration is missing, or has no message times although there are several ranks.
        """
        calibration = self.calibration or cached_calibration(self.cluster.world_size)
        if not calibration.message_classes and self.cluster.world_size > 1:
            raise InputError("the calibration has no message times; run `ringlab calibrate`")
        return calibration

    @property
    def shares_cores(self) -> bool:  # type: ignore[override]
        """Whether there are at least as many ranks as cores, so that messages slow down the computing of ranks."""
        return self.cluster.world_size >= int(self.message_costs.environment.get("cores", 1))

    def template(self, shape: Shape, ranks: tuple[int, ...]) -> Template:
        as_gloo = shape.verb in AS_GLOO and shape.verb not in self.algorithms
        algorithm = self.algorithm(shape._replace(verb=AS_GLOO[shape.verb]) if as_gloo else shape, ranks)
        template = measured_template(algorithm, fitted(shape, algorithm), self.message_costs)
        if not as_gloo:
            return template
        nbytes = shape.elements * shape.itemsize
        copies = sum(local_seconds(self.message_costs, part) for part in (nbytes, nbytes // shape.ranks))
        self.notes["all_gather and reduce_scatter copy and reduce the whole buffer, as torch does on gloo"] = None
        return replace(template, division=template.division + copies)

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
    """Return the shape with its elements rounded up to whole chunks, if the algorithm needs equal chunks."""
    elements = max(shape.elements, int(algorithm.spec.repeats))
    chunks = algorithm.chunks(shape.ranks) if algorithm.needs_equal_chunks else 1
    return shape._replace(elements=-(-elements // chunks) * chunks)


class CallClass(NamedTuple):
    """Collectives with the same ``template``. If it is None, each takes ``seconds`` after its last rank has entered."""

    template: Template | None
    seconds: float  # inside the backend, after the last rank enters
    collectives: Ints  # numbers of the collectives
    parts: Ints  # [collectives, ranks]: calls


def find_classes(calls: ReplayedCalls, carrier: NetworkCarrier) -> list[CallClass]:
    """Group all collectives into call classes. Raise InputError if the carrier does not support a collective."""
    pairs = np.stack([calls.shape, calls.group], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    kinds: dict[object, tuple[Template | None, float, list[int]]] = {}
    for number, (shape, group) in enumerate(distinct.tolist()):
        arguments = calls.shapes[shape], calls.groups[group]
        inside = carrier.seconds_inside(*arguments)
        template = carrier.template(*arguments) if inside is None else None
        key = id(template) if template is not None else (inside, arguments[0].ranks)
        kinds.setdefault(key, (template, inside or 0.0, []))[2].append(number)
    classes = []
    for template, seconds, numbers in kinds.values():
        collectives = np.flatnonzero(np.isin(which.reshape(-1), numbers))
        width = calls.first_part[collectives[0] + 1] - calls.first_part[collectives[0]]
        parts = calls.parts[calls.first_part[collectives][:, None] + np.arange(width)]
        classes.append(CallClass(template, seconds, collectives, parts))
    return classes
