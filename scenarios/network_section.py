"""Define the keys that all kinds of ``[cluster]`` networks share: routing, placement, transport and world size."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import PlainValidator, model_validator

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.transport import Transport
from scenarios.fields import Count, Section, read_reference
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.placement import place_in_blocks, place_on, place_round_robin
from simcomm.cluster.routing import Routing, ecmp, shortest

KINDS = ("preset", "system", "topology", "link")  # exactly one of these keys is set
PLACEMENTS = {"block": place_in_blocks, "round-robin": place_round_robin}
Placement = Callable[[Cluster], Cluster]


def _read_routing(value: object) -> Routing:
    name, parameters = read_reference(value, 'a routing is "shortest", "ecmp" or {name = "ecmp", seed = 1}')
    if name not in ("shortest", "ecmp"):
        raise InputError(f"unknown routing {quote(name)}; use shortest or ecmp")
    known = ("seed",) if name == "ecmp" else ()
    for key in parameters.keys() - {*known}:
        raise InputError(f"routing {name} has no parameter {key}; it takes {', '.join(known) or 'no parameters'}")
    return ecmp(**parameters) if name == "ecmp" else shortest  # type: ignore[arg-type]  # ecmp checks its seed


def _read_placement(value: object) -> Placement:
    if isinstance(value, list) and all(isinstance(host, str) for host in value):
        return partial(place_on, hosts=value)
    if not isinstance(value, str) or value not in PLACEMENTS:
        raise InputError(f"unknown placement {quote(value)}; use {', '.join(PLACEMENTS)}, or a list of hosts")
    return PLACEMENTS[value]


class ClusterSection(Section):
    """Base class for the kinds of ``[cluster]`` tables. A subclass defines the keys of its kind."""

    label: ClassVar[str]  # name in messages

    def build(self, folder: Path) -> Cluster:
        """Return the cluster. Paths in the table are relative to ``folder``.

        Raise InputError if the table does not describe a valid cluster.
        """
        raise NotImplementedError

    @classmethod
    def key_names(cls) -> list[str]:
        """Return the keys of this table. The keys that only this kind of cluster has come first."""
        return sorted(cls.model_fields, key=lambda key: key in NetworkSection.model_fields)


class NetworkSection(ClusterSection):
    """Base class for ``[cluster]`` tables of networks. A subclass adds keys and implements ``build_network``."""

    knows_gpus: ClassVar[bool] = False  # required by NCCL's model

    world_size: Count | None = None
    routing: Annotated[Any, PlainValidator(_read_routing)] = None  # a value of type Routing
    placement: Annotated[Placement, PlainValidator(_read_placement)] | None = None
    transport: Literal["ideal", "gloo-tcp", "nccl"] = "ideal"

    @model_validator(mode="after")
    def _check_nccl(self) -> Self:
        if self.transport != "nccl":
            return self
        if not self.knows_gpus:
            raise InputError(
                'transport = "nccl" requires known GPUs: use a hardware catalog preset, or '
                'describe the system with system = "h100_2x8_aws_p5_efa" or a [cluster.system] table'
            )
        if self.routing is not None:
            raise InputError(
                'routing has no effect with transport = "nccl", which does not model single routes; remove routing'
            )
        for key in ("world_size", "placement"):
            if getattr(self, key) is not None:
                raise InputError(
                    f'{key} is not supported with transport = "nccl", which places one rank on each GPU in '
                    "order; use nodes and gpus_per_node"
                )
        return self

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        """Return the network. If ``transport`` is None, a calibration or NCCL's model provides the software costs.

        Raise InputError if the table does not describe a valid network.
        """
        raise NotImplementedError

    def build(self, folder: Path) -> Cluster:
        return self.build_network(folder, IDEAL if self.transport == "ideal" else None)
