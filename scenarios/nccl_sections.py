"""Define ``[nccl]``, with NCCL's version and environment variables, and ``[cluster] system``, a system description."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from collectives.checks import MOST_RANKS
from collectives.errors import InputError
from collectives.quoting import suggest
from collectives.transport import Transport
from collectives.units import TomlFloat
from scenarios.fields import Count, Section
from scenarios.network_section import NetworkSection
from simcomm.cluster.cluster import Cluster

if TYPE_CHECKING:
    from simcomm.nccl.settings import NcclSettings


SWITCH = {"0": False, "1": True}


def _as_number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _as_text(value: object) -> object:
    """Return a number as the text of an environment variable. Other values are returned unchanged."""
    if isinstance(value, TomlFloat):
        return value.text
    return str(value) if type(value) in (int, float) else value


Switch = Annotated[bool | None, BeforeValidator(lambda value: SWITCH.get(str(value), value))]
SwitchOrDefault = Annotated[bool | None, BeforeValidator(lambda value: (SWITCH | {"2": None}).get(str(value), value))]
Number = Annotated[int | None, BeforeValidator(_as_number)]
Text = Annotated[str | None, BeforeValidator(_as_text)]


class NcclSection(Section):
    """``[nccl]``: the version of NCCL, and the environment variables that it reads."""

    version: Text = None
    NCCL_ALGO: Text = None
    NCCL_PROTO: Text = None
    NCCL_MIN_NCHANNELS: Number = None
    NCCL_MAX_NCHANNELS: Number = None
    NCCL_MIN_CTAS: Number = None  # newer names of the two above
    NCCL_MAX_CTAS: Number = None
    NCCL_P2P_LEVEL: Text = None
    NCCL_P2P_DISABLE: Switch = None
    NCCL_SHM_DISABLE: Switch = None
    NCCL_NET_GDR_LEVEL: Text = None
    NCCL_NVLS_ENABLE: SwitchOrDefault = None  # 2: NCCL decides
    NCCL_COLLNET_ENABLE: Switch = None
    NCCL_BUFFSIZE: Number = None
    NCCL_NTHREADS: Number = None

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        self.settings()
        return self

    def settings(self) -> "NcclSettings":
        """Return the settings. Raise InputError for an invalid value, or if two keys are names of the same setting."""
        from simcomm.nccl.settings import VARIABLES, NcclSettings

        keys = self.model_dump(exclude_none=True)
        for newer, name in (("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS"), ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS")):
            if newer in keys and name in keys:
                raise InputError(f"{newer} and {name} are the same setting; remove one of them")
            if newer in keys:
                keys[name] = keys.pop(newer)
        fields = {variable: name for name, variable in VARIABLES.items()} | {"version": "version"}
        return NcclSettings(**{fields[key]: value for key, value in keys.items()})


class SystemSection(NetworkSection):
    """``[cluster] system``: the name of a shipped system description, or a table that describes a system."""

    label: ClassVar[str] = "a system description"
    knows_gpus: ClassVar[bool] = True

    system: str | dict[str, Any]
    nodes: Count | None = None
    gpus_per_node: Count | None = None
    transport: Literal["nccl"] = "nccl"

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        from simcomm.nccl.clusters import nccl_cluster
        from simcomm.nccl.descriptions import check_own_line, describe_own, describe_system, read_systems

        sizes = {"nodes": self.nodes, "gpus": self.gpus_per_node}
        counts = {key: count for key, count in sizes.items() if count}
        if isinstance(self.system, dict):
            check_own_line("cluster.system", self.system)
            system = describe_system("in this file", {"nodes": 1} | self.system | counts)
        elif self.system in (known := read_systems()):
            system = describe_own(self.system, counts)
        else:
            raise InputError(
                f"system {self.system!r} is not one of the {len(known)} system descriptions; "
                f'{suggest(self.system, known)}; or describe it: system = {{gpus = 4, gpu = "A100 SXM"}}'
            )
        if system.ranks > MOST_RANKS:
            raise InputError(f"{system.ranks} GPUs is too many; the maximum is {MOST_RANKS}")
        return nccl_cluster(system)
