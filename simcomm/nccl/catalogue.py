"""Translate entries of the hardware catalog into keys of a system description."""

import re
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

from collectives.errors import InputError
from collectives.quoting import suggest
from collectives.units import parse_latency
from simcomm.cluster.hardware import find_link, find_machine, find_part, machine_entries, parts

Generation = Literal[
    "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna", "cpu"
]
GENERATIONS: tuple[str, ...] = get_args(Generation)
WITHOUT_GEFORCE_P2P = GENERATIONS[GENERATIONS.index("turing") :]  # generations whose GeForce boards lack P2P
AMPERE_OF_8_0 = ("A100", "A800", "A30 ")  # compute capability; other Ampere boards have 8.6


class Gpu(NamedTuple):
    """A GPU model. The model ``CPU`` represents MPI on CPUs, where each "GPU" is a process."""

    name: str
    generation: str
    nvlink: float  # line rate of all NVLinks (or xGMI) in one direction, GB/s; 0: none
    pcie: int  # generation
    geforce: bool  # no P2P over PCIe unless the driver is patched
    form: str  # SXM2 to SXM6, superchip or OAM; "card" otherwise

    @property
    def model(self) -> str:
        """The first word of the name that contains a digit, such as A100. Boards with the same chip share it."""
        return next((word for word in self.name.split() if re.search(r"\d", word)), self.name)

    @property
    def usual_link(self) -> str:
        """The default link between the GPUs of a host."""
        if self.generation in ("cdna", "cpu"):
            return {"cdna": "xgmi", "cpu": "cpu"}[self.generation]
        if self.form == "SXM2":
            return "mesh"
        return "nvswitch" if self.form.startswith("SXM") or (self.form == "superchip" and self.nvlink) else "pcie"

    @property
    def has_ll128(self) -> bool:
        """Whether NCCL uses LL128 on this GPU by default: ``ncclTopoTuneModel`` in src/graph/tuning.cc.

        NCCL lists the compute capabilities 7.0, 8.0, 9.0, 10.0 and 12.0. So 7.5 (Turing), 8.6 and 8.9 (such as GeForce)
        are excluded. 10.3 (B300) and 12.1 (GB10) are newer than that source; they are treated like 10.0 and 12.0.
        """
        if self.generation == "ampere":
            return f"{self.name} ".startswith(AMPERE_OF_8_0)
        return self.generation in ("volta", "hopper", "blackwell")


CPU = Gpu("CPU", "cpu", 0.0, 4, False, "card")


@cache
def described_gpus() -> dict[str, Gpu]:
    """Return a dict of the catalog's GPUs by name. It includes ``CPU`` and omits GPUs whose generation is unknown."""
    names = [name for name, figures in parts("GPU").items() if "generation" in figures]
    return {name: _from_catalogue(name) for name in names} | {"CPU": CPU}


def _from_catalogue(name: str) -> Gpu:
    figures = parts("GPU")[name]
    value = {quantity: figure.value for quantity, figure in figures.items()}
    pcie = value["pcie"] if value["pcie"].startswith("PCIe") else value["cpu_pcie"]  # NVLink-C2C: the slots of its CPU
    return Gpu(
        value.get("board", name),
        value["generation"],
        find_link(value["nvlink"]).bandwidth / 1e9 if "nvlink" in value else 0.0,
        int(pcie.removeprefix("PCIe ").partition(".")[0]),
        value.get("p2p_level") == "NVL",
        value.get("form", "card"),
    )


def find_gpu(name: str) -> Gpu:
    """Return a GPU from the catalog by name. Boards that differ only in memory count as one GPU.

    Raise InputError if the catalog does not contain it.

    >>> find_gpu("A100 80GB SXM")
    Gpu(name='A100 SXM', generation='ampere', nvlink=300.0, pcie=4, geforce=False, form='SXM4')
    """
    if name not in described_gpus():
        raise InputError(f"gpu = {name!r} is not in the catalog; {suggest(name, described_gpus())}")
    return described_gpus()[name]


def match_gpu(driver_name: str) -> Gpu | None:
    """Return the GPU for a name that the driver reports, or None if the catalog lacks it.

    >>> match_gpu("NVIDIA A100-SXM4-80GB").name, match_gpu("NVIDIA H100 80GB HBM3").name
    ('A100 SXM', 'H100 SXM')
    """

    def words_of(name: str) -> set[str]:
        return {re.sub(r"SXM\d", "SXM", word) for word in re.split(r"[\s-]+", name.upper())}

    words = words_of(driver_name)
    named = {gpu: words_of(name) for name, gpu in described_gpus().items() if gpu.name == name}
    fitting = [gpu for gpu in named if named[gpu] <= words]
    if not fitting:  # the driver's name of an H100 with NVSwitches has neither PCIe nor SXM
        fitting = [gpu for gpu in named if named[gpu] <= words | {"SXM"}]
    return max(fitting, key=lambda gpu: len(named[gpu]), default=None)


def unlisted_gpu(name: str, generation: str, nvlink: float, pcie: int) -> Gpu:
    """Return the description of a GPU that is not in the catalog.

    ``nvlink`` is the line rate of all its NVLinks in one direction in GB/s, and ``pcie`` the generation of its slot.
    GeForce cards of the generations in ``WITHOUT_GEFORCE_P2P`` are recognized by their name and marked as lacking P2P.

    >>> unlisted_gpu("RTX 5070 Ti", "blackwell", 0, 5).geforce
    True
    """
    geforce = re.fullmatch(r"(GeForce )?[RG]TX \d{3,4}(?! Ada)( Ti| SUPER| D)*", name) is not None
    form = next((word for word in name.split() if re.fullmatch(r"SXM\d?|OAM", word)), "card")
    return Gpu(name, generation, nvlink, pcie, geforce and generation in WITHOUT_GEFORCE_P2P, form)


NVLINKS = ("nvswitch", "mesh", "bridge", "xgmi")  # kinds of links that are NVLink or xGMI
LINKS = {"switch": "nvswitch", "pairs": "bridge", "cube-mesh": "mesh"}
CPUS = {"Infinity Fabric": "amd", "UPI": "intel", "QPI": "intel"}  # by the link between two CPUs


def catalogue_keys(where: str, preset: str) -> dict[str, Any]:
    """Return the keys of a system description that the catalog states for a machine, such as gpu, link, pcie and nic.

    Each board of a machine counts as a host, so a GB200 NVL72 has 18 hosts with four GPUs each, in one NVLink domain.
    Raise InputError if the machine is unknown. ``where`` is the start of its message.

    >>> catalogue_keys("", "dgx-h100")
    {'gpu': 'H100 SXM', 'link': 'nvswitch', 'pcie': 5, 'nic': 400.0, 'cpu': 'intel'}
    """
    try:
        machine = find_machine(preset)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    entry = machine_entries()[preset]
    gpu = find_part("GPU", entry["gpu"])
    keys: dict[str, Any] = {"gpu": entry["gpu"], "link": LINKS.get(entry.get("nvlink", ""), "pcie")}
    slots = [entry.get("gpu_pcie", gpu["pcie"].value), entry.get("uplink", "")]
    generations = [int(slot[5]) for slot in slots if slot.startswith("PCIe ")]
    if generations:
        keys["pcie"] = min(generations)
    if machine.nics and machine.nic:
        keys["nic"] = machine.nic.bandwidth * machine.nics / machine.boards / 1e9
    if machine.pcie_switches and keys["link"] == "pcie":
        keys["layout"] = "switch" if machine.pcie_switches == 1 else "switches"
    for link, cpu in CPUS.items():
        if entry.get("socket_link", "").startswith(link):
            keys["cpu"] = cpu
    if machine.boards > 1:
        keys["domain"] = entry["gpus"]
    return keys


def gpus_of_host(preset: str) -> int:
    """Return the number of GPUs on a host, which is one board of the machine."""
    entry = machine_entries()[preset]
    return int(entry["gpus"]) // int(entry.get("boards", 1))


def hosts_of_machine(preset: str, nodes: int, gpus: int) -> dict[str, int]:
    """Return the keys ``nodes`` (hosts) and ``gpus`` (per host) for ``nodes`` machines with ``gpus`` GPUs each.

    For machines with several boards, each board is a host, and ``domain`` is added. Raise InputError if ``gpus``
    exceeds the GPUs of one board and is not a multiple of this number.

    >>> hosts_of_machine("gb200-nvl72", 2, 72)
    {'nodes': 36, 'gpus': 4, 'domain': 72}
    """
    if machine_entries().get(preset, {}).get("boards", 1) == 1:
        return {"nodes": nodes, "gpus": gpus}
    each = gpus_of_host(preset)
    if gpus > each and gpus % each:
        raise InputError(
            f"{preset}: gpus_per_node must be at most {each} (one board) or a multiple of {each}, not {gpus}"
        )
    used = min(gpus, each)
    return {"nodes": nodes * gpus // used, "gpus": used, "domain": gpus}


OLDEST_PORT = "InfiniBand EDR"  # default of generations without a port in the catalog
USUAL_NVLINK = "NVLink 2"  # default of generations without NVLink figures in NCCL


def generation_year(generation: str) -> int:
    """Return the year of the first product of a GPU generation, which is about when its hosts were built."""
    return int(parts("generation")[generation]["year"].value)


def software_year(generation: str) -> int:
    """Return the year of the NCCL version that usually runs on GPUs of a generation."""
    return int(parts("generation")[generation]["software_year"].value)


def usual_nic(network: str, generation: str) -> float:
    """Return the usual rate of one NIC in GB/s: the network's or, if the catalog lacks it, the GPU generation's.

    >>> usual_nic("efa1", "ampere"), usual_nic("ib", "hopper")
    (12.5, 50.0)
    """
    if network in parts("network"):
        return float(parts("network")[network]["gbit_per_nic"].value) / 8
    figures = parts("generation")[generation]
    return find_link(figures["port"].value if "port" in figures else OLDEST_PORT).bandwidth / 1e9


@cache
def pcie_lane(generation: int) -> float:
    """Return the bandwidth of a PCIe lane in one direction after line coding, in GB/s."""
    return find_link(f"PCIe {generation}.0").bandwidth / 1e9


@cache
def usable_share(link: str) -> float:
    """Return the share of a link's line rate that NCCL's tuner assumes (``src/graph/topo.h``)."""
    figures = find_link(link)
    assert figures.usable is not None, f"{link} has no usable rate"
    return figures.usable / figures.bandwidth


def usable_nvlink(generation: str) -> float:
    """Return the share of NVLink's line rate that NCCL's tuner assumes on GPUs of a generation."""
    return usable_share(nvlink_of(generation))


def nvlink_of(generation: str) -> str:
    """Return the catalog's name for the NVLink of a GPU generation."""
    figures = parts("generation")[generation]
    return figures["nvlink"].value if "nvlink" in figures else USUAL_NVLINK


@cache
def plugin_latency(network: str, *, is_staged: bool = False) -> float:
    """Return the latency in us that a network's plug-in reports to NCCL, or 0 if it is unknown.

    ``is_staged`` selects the latency without GPUDirect, for networks on which it differs.

    >>> plugin_latency("efa3"), plugin_latency("efa1", is_staged=True), plugin_latency("ib")
    (35.0, 150.0, 0.0)
    """
    figures = parts("network").get(network, {})
    figure = figures.get("plugin_latency_staged" if is_staged else "plugin_latency", figures.get("plugin_latency"))
    return round(parse_latency(figure.value) * 1e6, 6) if figure else 0.0
