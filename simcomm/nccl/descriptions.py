"""Read system descriptions: the facts about a machine or cluster that a prediction may use.

The head of ``simcomm/nccl/data/systems_described.toml`` defines the schema. Missing keys get default values, and each
``System`` lists these keys.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from collectives.errors import InputError, NotKnown, warn_input
from collectives.input_files import read_text
from collectives.quoting import describe_accepted, quote, suggest
from collectives.units import TomlFloat, parse_bandwidth
from simcomm.nccl.catalogue import (
    NVLINKS,
    Generation,
    Gpu,
    catalogue_keys,
    find_gpu,
    hosts_of_machine,
    software_year,
    unlisted_gpu,
)
from simcomm.nccl.settings import NcclRelease, parse_release

Count = Annotated[int, Field(ge=1, le=1_000_000)]
GB = 1e9


def _as_gigabytes(value: object) -> object:
    return parse_bandwidth(value) / GB if isinstance(value, str) else value


Rate = Annotated[float, BeforeValidator(_as_gigabytes), Field(gt=0, le=1e6, allow_inf_nan=False)]
RATES = ("nic", "nvlink")  # keys that are bandwidths


class Keys(BaseModel):
    """The keys that a system description can have, with their types. ``_describe`` checks for missing ones."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    machine: str | None = None
    preset: str | None = None  # a machine's name in the hardware catalog
    nodes: Count | None = None
    gpus: Count | None = None
    gpu: str | None = None
    generation: Generation | None = None
    link: Literal["nvswitch", "mesh", "bridge", "xgmi", "pcie", "cpu"] | None = None
    nvlink: Annotated[float, BeforeValidator(_as_gigabytes), Field(ge=0, le=1e5, allow_inf_nan=False)] | None = None
    pcie: Annotated[int, Field(ge=1, le=6)] | None = None
    lanes: Literal[1, 2, 4, 8, 16, 32] | None = None
    layout: Literal["switch", "switches", "socket", "two"] | None = None
    cpu: Literal["amd", "intel", "arm"] | None = None
    p2p: bool | None = None
    p2p_refused: bool | None = None
    p2p_level: Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"] | None = None
    host: Literal["desktop", "server"] | None = None
    domain: Count | None = None
    net: Literal["ib", "efa1", "efa2", "efa3", "slingshot", "fastrak", "tcpx", "tcp", "opa"] | None = None
    nic: Rate | None = None
    nic_guess: bool | None = None
    gdr: bool | None = None
    sharp: bool | None = None
    procs: Literal["single", "per_gpu"] | None = None
    harness: Literal["nccl-tests", "deepbench", "torch", "osu", "mlsl"] | None = None
    nccl: Annotated[NcclRelease, BeforeValidator(parse_release)] | None = None
    algo: Literal["ring", "tree", "nvls", "nvls_tree"] | None = None
    proto: Literal["ll", "ll128", "simple"] | None = None
    cluster: str | None = None
    degraded: bool | None = None
    skip: bool | None = None


def read_keys(where: str, line: Mapping[str, Any]) -> dict[str, Any]:
    """Check the keys of a system description and return them, with bandwidths in GB/s.

    If a key is invalid, raise an InputError that starts with ``where``.

    >>> read_keys("system mine", {"nodes": 2, "nic": "100 Gbit/s"})
    {'nodes': 2, 'nic': 12.5}
    """
    try:
        keys = Keys(**line)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "line"
        if first["type"] == "extra_forbidden":
            raise InputError(f"{where}: unknown key {key!r}; use {', '.join(Keys.model_fields)}") from error
        must_be = describe_accepted(first["type"], first["msg"])
        if key == "gpu" and isinstance(first["input"], list):
            how = "name the slowest, or compare them with --what-if cluster.system.gpu=A,B"
            must_be += f", because a system has only one GPU model; {how}"
        raise InputError(f"{where}: {key} = {quote(first['input'])}{must_be}") from error
    return {key: getattr(keys, key) for key in Keys.model_fields if key in keys.model_fields_set}


def with_unit(key: str, value: Any) -> Any:
    """Return a bandwidth as text with its unit, such as "12.5 GB/s", and the value of any other key unchanged."""
    return f"{value} GB/s" if key in RATES and value and not isinstance(value, str) else value


OF_TABLES = ("cluster", "skip")  # keys for published tables only


def check_own_line(where: str, line: Mapping[str, Any]) -> None:
    """Warn about each bandwidth without a unit in a user's system description; such values are deprecated.

    Raise InputError for a key that does not affect predictions.
    """
    for key in OF_TABLES:
        if key in line:
            raise InputError(f"{where}: {key} is for published tables and has no effect on predictions; remove it")
    for key in RATES:
        value = line.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            warn_input(f'{where}: {key} = {value} has no unit and is taken as GB/s; write {key} = "{value} GB/s"')


OWN_DATA = Path(str(files("simcomm.nccl"))) / "data"
FILE_NAME = "systems_described.toml"


@dataclass(frozen=True, kw_only=True)
class System:
    """A system of ``nodes`` hosts with ``gpus`` ranks each. Bandwidths are in GB/s in one direction."""

    slug: str
    nodes: int
    gpus: int  # used per host; MPI on CPUs: processes
    gpu: Gpu
    link: str  # nvswitch, mesh, bridge, xgmi, pcie or cpu
    nvlink: float  # all links of a GPU at line rate
    pcie: int  # generation of the GPUs' slots
    lanes: int = 16
    layout: str  # PCIe topology: switch, switches, socket or two
    cpu: str | None = None  # vendor of the CPUs: amd, intel or arm
    p2p: bool  # whether GPUs use P2P over PCIe; if not stated, NCCL's default decides (communicator.py)
    p2p_refused: bool  # the driver or the virtual machine rejects P2P, whatever NCCL_P2P_LEVEL is
    p2p_level: str | None = None  # NCCL_P2P_LEVEL, if set
    host: str = "server"  # or desktop
    domain: int  # GPUs joined by NVLink
    net: str | None = None  # ib, efa1, efa2, efa3, slingshot, fastrak, tcpx, tcp or opa
    nic: float = 0.0  # all ports of a host that NCCL may use; 0: no NIC known
    nic_guess: bool = False
    gdr: bool
    sharp: bool = False
    procs: str  # single: one process for all GPUs of a host; or per_gpu
    harness: str = "nccl-tests"  # or deepbench, torch, osu or mlsl
    version: tuple[int, int]  # NCCL's
    algo: str | None = None  # forced for the whole run
    proto: str | None = None
    cluster: str | None = None  # shared by systems on the same hosts
    degraded: bool = False
    skip: bool = False  # described, but not to be predicted
    preset: str | None  # the machine's name in the hardware catalog
    stated: frozenset[str]  # keys of the system's own line
    defaulted: frozenset[str]

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    def part(self, nodes: int, gpus: int) -> "System":
        """Return the system of a group with ``gpus`` ranks on each of ``nodes`` hosts.

        The group gets a proportional share of the NVLink domain and, if it spans several hosts, of the NICs.

        >>> part = describe_preset("dgx-h100", 4, 8).part(nodes=4, gpus=1)
        >>> part.nodes, part.gpus, part.domain
        (4, 1, 1)
        """
        if (nodes, gpus) == (self.nodes, self.gpus):
            return self
        share = gpus / self.gpus
        nic = self.nic * share if nodes > 1 else self.nic
        return replace(self, nodes=nodes, gpus=gpus, nic=nic, domain=max(1, round(self.domain * share)))

    @property
    def nccl_nodes(self) -> int:
        """The number of nodes in NCCL's sense: hosts, or NVLink domains of several hosts."""
        return ceil(self.ranks / max(self.gpus, self.domain if self.link == "nvswitch" else 1))

    @property
    def guessed(self) -> tuple[str, ...]:
        """The keys that affect predictions but have guessed values: ``nic`` (only for several hosts) and ``nccl``."""
        is_nic_unknown = self.nic_guess and self.nodes > 1
        return tuple(key for key, unknown in (("nic", is_nic_unknown), ("nccl", "nccl" in self.defaulted)) if unknown)


CONSTANT_DEFAULTS = {field.name: field.default for field in fields(System) if field.default is not MISSING}


def read_systems(
    directory: Path | str = OWN_DATA, leave_out: Callable[[str, NotKnown], None] | None = None
) -> dict[str, System]:
    """Return the systems in a directory's ``systems_described.toml``, by slug.

    Every file can use the machines that Ringlab ships, and define more. If a system's GPU is unknown, ``leave_out`` is
    called with its slug and the error, and the system is omitted. Without ``leave_out``, InputError is raised. Each
    InputError names the file, the system and the key.

    >>> read_systems()["h100_2x8_aws_p5_efa"].nic
    400.0
    """
    path = Path(directory) / FILE_NAME
    content = _read_toml(path)
    machines = {**own_machines(), **_tables(content, "machines", path)}
    lines = _tables(content, "systems", path)
    if not lines:
        raise InputError(f"{path}: describes no system; write a line per system under [systems]")
    systems: dict[str, System] = {}
    for slug, line in lines.items():
        try:
            systems[slug] = _describe(f"{path}: system {slug}", slug, line, machines)
        except NotKnown as error:
            if leave_out is None:
                raise
            leave_out(slug, error)
    return systems


def put_aside(directory: Path | str = OWN_DATA) -> frozenset[str]:
    """Return the slugs of held-out systems from a directory's ``put_aside.txt``. They must not be used in a fit."""
    path = Path(directory) / "put_aside.txt"
    return frozenset(read_text(path).split()) if path.is_file() else frozenset()


def describe_system(slug: str, line: Mapping[str, Any]) -> System:
    """Return the system that the keys in ``line`` describe.

    Raise InputError if a key is unknown, missing or invalid, or contradicts another key.

    >>> describe_system("mine", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"}).layout
    'socket'
    """
    return _describe(f"system {slug}", slug, line, own_machines())


def describe_own(slug: str, counts: Mapping[str, int]) -> System:
    """Return the system that Ringlab ships as ``slug``, with ``counts`` replacing its ``nodes`` or ``gpus``.

    Defaults are derived from the new counts. Raise KeyError if the slug is unknown, and InputError if a key is missing.
    """
    path = OWN_DATA / FILE_NAME
    return describe_system(slug, {**_tables(_read_toml(path), "systems", path)[slug], **counts})


@cache
def own_machines() -> dict[str, Any]:
    """Return the ``machines`` tables of the system descriptions that Ringlab ships, by name."""
    path = OWN_DATA / FILE_NAME
    return _tables(_read_toml(path), "machines", path)


def describe_preset(preset: str, nodes: int, gpus: int, **more: Any) -> System:
    """Return the system of ``nodes`` machines from the hardware catalog. ``more`` adds keys to its description.

    Each board of a machine is a host: two NVL72 are 36 hosts of four GPUs, in domains of 72. Raise InputError if a key
    is unknown or invalid.

    >>> racks = describe_preset("gb200-nvl72", 2, 72)
    >>> racks.nodes, racks.gpus, racks.domain, racks.nic
    (36, 4, 72, 200.0)
    """
    named = [name for name, keys in own_machines().items() if keys.get("preset") == preset]
    machines = {**own_machines(), preset: {"preset": preset}}
    line = {"machine": named[0] if named else preset, **hosts_of_machine(preset, nodes, gpus), **more}
    return _describe(f"preset {preset}", preset, line, machines)


def _read_toml(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        content = tomllib.loads(text, parse_float=TomlFloat)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer with thousands of digits
        raise InputError(f"{path}: not a TOML file: {error}") from error
    unknown = content.keys() - {"machines", "systems"}
    if unknown:
        raise InputError(f"{path}: unknown key {min(unknown)!r}; use [machines] and [systems]")
    return content


def _tables(content: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict) or not all(isinstance(line, dict) for line in table.values()):
        raise InputError(f'{path}: [{name}] must have lines like NAME = {{ gpu = "A100 SXM", ... }}')
    return table


def _describe(where: str, slug: str, line: Mapping[str, Any], machines: Mapping[str, Any]) -> System:
    """Return the system that ``line`` describes. Its keys override its machine's keys, which override the defaults."""
    stated = read_keys(where, line)
    machine = stated.pop("machine", None)
    if "preset" in stated:
        raise InputError(f"{where}: preset is a key of [machines]; use machine = NAME")
    inherited: dict[str, Any] = {}
    if machine is not None:
        if machine not in machines:
            raise InputError(f"{where}: unknown machine {machine!r}; {suggest(machine, machines)}")
        inherited = _machine_keys(f"{where}: machine {machine}", machines[machine])
    known = {**inherited, **stated}
    for key in ("nodes", "gpus", "gpu"):
        if key not in known:
            raise InputError(f"{where}: {key} is missing; set it")
    gpu = _gpu_of(where, known)
    usual = {**CONSTANT_DEFAULTS, **_defaults(gpu, known)}
    if known["nodes"] > 1:
        for key, example in (("net", "ib"), ("nic", "200 Gbit/s")):
            if key not in known:
                raise InputError(f"{where}: {key} is required for more than one node; for example, {key} = {example!r}")
    values = {**usual, **known}
    if values["link"] in NVLINKS and not values["nvlink"]:
        raise InputError(f'{where}: link = {values["link"]!r}, but {gpu.name} has no NVLink; use "pcie", or set nvlink')
    if "domain" in stated and values["link"] != "nvswitch":
        raise InputError(
            f"{where}: domain = {stated['domain']} requires NVSwitch, not link = {values['link']!r}; remove domain"
        )
    if values["p2p_refused"] and known.get("p2p"):
        raise InputError(f"{where}: p2p = true contradicts p2p_refused = true; remove one of them")
    release: NcclRelease = values.pop("nccl")
    return System(
        slug=slug,
        preset=values.pop("preset", None),
        gpu=gpu,
        version=release.number(),
        stated=frozenset(stated),
        defaulted=frozenset(usual.keys() - known.keys()),
        **{key: value for key, value in values.items() if key not in ("gpu", "generation")},
    )


def _machine_keys(where: str, written: Mapping[str, Any]) -> dict[str, Any]:
    keys = read_keys(where, written)
    for key in ("machine", "nodes", "gpus"):
        if key in keys:
            raise InputError(f"{where}: {key} is a key of [systems], not of [machines]; set it for the system")
    return {**catalogue_keys(where, keys["preset"]), **keys} if "preset" in keys else keys


def _gpu_of(where: str, known: Mapping[str, Any]) -> Gpu:
    missing = [key for key in ("generation", "nvlink", "pcie") if key not in known]
    try:
        gpu = find_gpu(known["gpu"])
    except InputError as error:
        if not missing:
            return unlisted_gpu(known["gpu"], known["generation"], known["nvlink"], known["pcie"])
        raise NotKnown(
            f'{where}: {error}; for another GPU also set {", ".join(missing)}, for example generation = "ampere", '
            "nvlink = 0 (none) and pcie = 4 (PCIe 4.0), and for a training compute = {rate = 500.0}, the samples/s of "
            "one GPU"
        ) from error
    return gpu._replace(generation=known.get("generation", gpu.generation))


def _defaults(gpu: Gpu, known: Mapping[str, Any]) -> dict[str, Any]:
    gpus, nodes, net = known["gpus"], known["nodes"], known.get("net")
    usual_layout = "switches" if gpu.name == "K80" else "socket" if gpus <= 4 else "two"
    if gpu.geforce and not known.get("p2p") and not known.keys() & {"lanes", "host"}:
        # consumer CPUs have 16 lanes for two boards; catalog machines with eight have a switch on each socket
        usual_layout = "switch" if gpus == 2 else "socket" if gpus <= 4 else "switches"
    layout = known.get("layout", usual_layout)
    per_gpu = nodes > 1 or known.get("harness") == "torch" or gpu.generation == "cpu"
    no_gdr = gpu.geforce or gpu.generation in ("kepler", "maxwell", "cpu") or gpu.name == "T4" or net == "tcp"
    return {
        "link": gpu.usual_link,
        "nvlink": gpu.nvlink,
        "pcie": gpu.pcie,
        "layout": usual_layout,
        "p2p": not gpu.geforce and layout in ("switch", "switches"),
        "p2p_refused": gpu.geforce and not known.get("p2p"),
        "domain": gpus,
        "gdr": not no_gdr,
        "procs": "per_gpu" if per_gpu else "single",
        "nccl": NcclRelease(year=software_year(gpu.generation)),
    }
