"""``Gpu``: what the hardware catalogue knows of a GPU that NCCL's speed depends on."""

import re
from functools import cache
from typing import Literal, NamedTuple, get_args

from collectives.errors import InputError
from collectives.suggestions import suggest
from simcomm.cluster.hardware_parts import find_link, parts

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
