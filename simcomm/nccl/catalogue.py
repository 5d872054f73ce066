"""What the hardware catalogue says of GPUs, their generations, machines and networks, in the words of a description."""

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
WITHOUT_GEFORCE_P2P = GENERATIONS[GENERATIONS.index("turing") :]  # GeForce boards of these have no peer-to-peer
AMPERE_OF_8_0 = ("A100", "A800", "A30 ")  # compute capability; other Ampere boards have 8.6


class Gpu(NamedTuple):
    """A GPU; ``CPU`` stands for MPI on processors, where a "GPU" is a process."""

    name: str
    generation: str
    nvlink: float  # GB/s in one direction, all links of the GPU at line rate; xGMI likewise; 0: none
    pcie: int  # generation
    geforce: bool  # a board for players: no peer-to-peer over PCIe unless the driver is patched
    form: str  # SXM2 to SXM6, superchip or OAM; "card" otherwise

    @property
    def model(self) -> str:
        """The word of its name that has a number: boards of one chip have the same.

        >>> find_gpu("A100 SXM").model, find_gpu("RTX 4070 Ti SUPER").model
        ('A100', '4070')
        """
        return next((word for word in self.name.split() if re.search(r"\d", word)), self.name)

    @property
    def usual_link(self) -> str:
        """What joins several of them on a host, unless a description says otherwise."""
        if self.generation in ("cdna", "cpu"):
            return {"cdna": "xgmi", "cpu": "cpu"}[self.generation]
        if self.form == "SXM2":
            return "mesh"
        return "nvswitch" if self.form.startswith("SXM") or (self.form == "superchip" and self.nvlink) else "pcie"

    @property
    def has_ll128(self) -> bool:
        """Whether NCCL has LL128 on by default: by compute capability, in ``ncclTopoTuneModel`` of src/graph/tuning.cc.

        It lists 7.0, 8.0, 9.0, 10.0 and 12.0, and so not 7.5 (Turing), 8.6 or 8.9 (GeForce and its kin). 10.3 (B300)
        and 12.1 (GB10) are younger than the source that was read, and taken as their families.

        >>> find_gpu("A100 SXM").has_ll128, find_gpu("RTX 4090").has_ll128
        (True, False)
        """
        if self.generation == "ampere":
            return f"{self.name} ".startswith(AMPERE_OF_8_0)
        return self.generation in ("volta", "hopper", "blackwell")


CPU = Gpu("CPU", "cpu", 0.0, 4, False, "card")


@cache
def described_gpus() -> dict[str, Gpu]:
    """Return every GPU of the catalogue whose generation is known, by name, and ``CPU``."""
    found = {name: _from_catalogue(name) for name, figures in parts("GPU").items() if "generation" in figures}
    return {**found, "CPU": CPU}


def _from_catalogue(name: str) -> Gpu:
    figures = parts("GPU")[name]
    value = {quantity: figure.value for quantity, figure in figures.items()}
    pcie = value["pcie"] if value["pcie"].startswith("PCIe") else value["cpu_pcie"]  # NVLink-C2C: its CPU's slots
    return Gpu(
        value.get("board", name),
        value["generation"],
        find_link(value["nvlink"]).bandwidth / 1e9 if "nvlink" in value else 0.0,
        int(pcie.removeprefix("PCIe ").partition(".")[0]),
        value.get("p2p_level") == "NVL",
        value.get("form", "card"),
    )


def find_gpu(name: str) -> Gpu:
    """Return a GPU of the catalogue; memory sizes of one board are the same GPU. Raise InputError.

    >>> find_gpu("A100 80GB SXM")
    Gpu(name='A100 SXM', generation='ampere', nvlink=300.0, pcie=4, geforce=False, form='SXM4')
    """
    if name not in described_gpus():
        raise InputError(f"gpu = {name!r} is not in the catalogue; {suggest(name, described_gpus())}")
    return described_gpus()[name]


def match_gpu(driver_name: str) -> Gpu | None:
    """Return the GPU that the driver calls so, whatever its memory; None where the catalogue has none of that name.

    >>> match_gpu("NVIDIA A100-SXM4-80GB").name, match_gpu("NVIDIA H100 80GB HBM3").name
    ('A100 SXM', 'H100 SXM')
    """
    words = {re.sub(r"SXM\d", "SXM", word) for word in re.split(r"[\s-]+", driver_name.upper())}
    named = {
        name: {re.sub(r"SXM\d", "SXM", word) for word in name.upper().split()}
        for name, gpu in described_gpus().items()
        if gpu.name == name
    }
    fitting = [name for name, parts_of_name in named.items() if parts_of_name <= words]
    if not fitting:  # an H100 on a board with NVSwitches is called neither PCIe nor SXM
        fitting = [name for name, parts_of_name in named.items() if parts_of_name <= words | {"SXM"}]
    return described_gpus()[max(fitting, key=lambda name: len(named[name]))] if fitting else None


def unlisted_gpu(name: str, generation: str, nvlink: float, pcie: int) -> Gpu:
    """Return a GPU that the catalogue does not have; whether it is a GeForce is read from its name.

    >>> unlisted_gpu("RTX 5070 Ti", "blackwell", 0, 5).geforce
    True
    """
    geforce = re.fullmatch(r"(GeForce )?[RG]TX \d{3,4}(?! Ada)( Ti| SUPER| D)*", name) is not None
    form = next((word for word in name.split() if re.fullmatch(r"SXM\d?|OAM", word)), "card")
    return Gpu(name, generation, nvlink, pcie, geforce and generation in WITHOUT_GEFORCE_P2P, form)


LINKS = {"switch": "nvswitch", "pairs": "bridge", "cube-mesh": "mesh"}
CPUS = {"Infinity Fabric": "amd", "UPI": "intel", "QPI": "intel"}  # by the link between two of them


def catalogue_keys(where: str, preset: str) -> dict[str, Any]:
    """Return the keys that follow from a machine of the catalogue: gpu, link, pcie, NICs, PCIe switches, cpu, domain.

    Of several boards each is a host: a GB200 NVL72 has 18 with four GPUs each, in one NVLink domain. Raises
    InputError for a machine that the catalogue does not have.

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
    """Return the GPUs of a host of a machine of the hardware catalogue, of which a system may use some.

    >>> gpus_of_host("dgx-h100"), gpus_of_host("gb200-nvl72")
    (8, 4)
    """
    entry = machine_entries()[preset]
    return int(entry["gpus"]) // int(entry.get("boards", 1))


def hosts_of_machine(preset: str, nodes: int, gpus: int) -> dict[str, int]:
    """Return hosts, GPUs of each and, of a machine of several boards, the GPUs that NVLink joins. Raise InputError.

    >>> hosts_of_machine("gb200-nvl72", 2, 72)
    {'nodes': 36, 'gpus': 4, 'domain': 72}
    """
    entry = machine_entries().get(preset, {})
    boards = entry.get("boards", 1)
    if boards == 1:
        return {"nodes": nodes, "gpus": gpus}
    each = entry["gpus"] // boards
    if gpus > each and gpus % each:
        raise InputError(
            f"{preset}: {gpus} GPUs of each; give up to {each}, or a multiple of {each}: a board has so many"
        )
    used = min(gpus, each)
    return {"nodes": nodes * gpus // used, "gpus": used, "domain": gpus}


OLDEST_PORT = "InfiniBand EDR"  # of generations for which the catalogue names no port
USUAL_NVLINK = "NVLink 2"  # likewise: of those to which NCCL gives no figure of its own


def generation_year(generation: str) -> int:
    """Return the year of the first product of a GPU generation: a host is about as old.

    >>> generation_year("ampere")
    2020
    """
    return int(parts("generation")[generation]["year"].value)


def software_year(generation: str) -> int:
    """Return the year of the software that is usual on GPUs of a generation.

    >>> software_year("ampere")
    2023
    """
    return int(parts("generation")[generation]["software_year"].value)


def usual_nic(network: str, generation: str) -> float:
    """Return GB/s of one NIC, to tell how many a host has: of a network where all have the same, else by generation.

    >>> usual_nic("efa1", "ampere"), usual_nic("ib", "hopper")
    (12.5, 50.0)
    """
    if network in parts("network"):
        return float(parts("network")[network]["gbit_per_nic"].value) / 8
    figures = parts("generation")[generation]
    return find_link(figures["port"].value if "port" in figures else OLDEST_PORT).bandwidth / 1e9


@cache
def pcie_lane(generation: int) -> float:
    """Return the GB/s of a PCIe lane in one direction, after line coding.

    >>> round(16 * pcie_lane(4), 1)
    31.5
    """
    return find_link(f"PCIe {generation}.0").bandwidth / 1e9


@cache
def usable_share(link: str) -> float:
    """Return the share of a link's line rate that NCCL reckons with (``src/graph/topo.h``).

    >>> usable_share("NVLink 4")
    0.824
    """
    found = find_link(link)
    assert found.usable is not None, f"{link} has no usable rate"
    return found.usable / found.bandwidth


@cache
def usable_nvlink(generation: str) -> float:
    """Return the share of its NVLinks' line rate that NCCL reckons with on a GPU of a generation.

    >>> usable_nvlink("ampere")
    0.8
    """
    figures = parts("generation")[generation]
    return usable_share(figures["nvlink"].value if "nvlink" in figures else USUAL_NVLINK)


@cache
def plugin_latency(network: str, *, is_staged: bool = False) -> float:
    """Return the us that a network's plug-in tells NCCL of a message; ``is_staged``: without GPUDirect.

    >>> plugin_latency("efa3"), plugin_latency("efa1", is_staged=True), plugin_latency("ib")
    (35.0, 150.0, 0.0)
    """
    figures = parts("network").get(network, {})
    figure = figures.get("plugin_latency_staged" if is_staged else "plugin_latency", figures.get("plugin_latency"))
    return round(parse_latency(figure.value) * 1e6, 6) if figure else 0.0
