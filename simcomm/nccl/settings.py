"""What a user may tell NCCL: its environment variables, with the meanings that NCCL gives them.

Sources: NCCL's user guide, "Environment Variables" (docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html), and
``src/graph/tuning.cc`` and ``src/graph/paths.cc`` (``ncclTopoCheckP2p``, ``ncclGetLevel``) of NVIDIA/nccl.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from collectives.errors import InputError
from collectives.quoting import suggest
from collectives.units import TomlFloat

RELEASES: dict[tuple[int, int], float] = {  # year and part of it
    (2, 0): 2017.6, (2, 1): 2017.9, (2, 2): 2018.4, (2, 3): 2018.7, (2, 4): 2019.1, (2, 5): 2019.9, (2, 6): 2020.2,
    (2, 7): 2020.5, (2, 8): 2020.9, (2, 9): 2021.3, (2, 10): 2021.5, (2, 11): 2021.7, (2, 12): 2022.2, (2, 13): 2022.5,
    (2, 14): 2022.7, (2, 15): 2022.8, (2, 16): 2023.0, (2, 17): 2023.2, (2, 18): 2023.4, (2, 19): 2023.9,
    (2, 20): 2024.2, (2, 21): 2024.4, (2, 22): 2024.5, (2, 23): 2024.7, (2, 24): 2025.0, (2, 25): 2025.1,
    (2, 26): 2025.2, (2, 27): 2025.4, (2, 28): 2025.8, (2, 29): 2026.0, (2, 30): 2026.3, (2, 31): 2026.6,
}  # fmt: skip


def year_of(version: tuple[int, int]) -> float:
    """Return when a version appeared; one that is not listed counts as the listed one before it.

    >>> year_of((2, 19)), year_of((2, 99))
    (2023.9, 2026.6)
    """
    older = [year for release, year in RELEASES.items() if release <= version]
    return older[-1] if older else RELEASES[2, 0]


def version_of(year: float) -> tuple[int, int]:
    """Return the version in use at a time; a whole year stands for just before its middle: users update late.

    >>> version_of(2023)
    (2, 18)
    """
    when = year + 0.45 if year == int(year) else year
    older = [release for release, appeared in RELEASES.items() if appeared <= when]
    return older[-1] if older else (2, 0)


class NcclRelease(NamedTuple):
    """NCCL's version as two numbers, or the year in which it was used."""

    version: tuple[int, int] | None = None
    year: float | None = None


def parse_release(value: object) -> NcclRelease:
    """Return the release that ``nccl = 2.19``, ``"2.19.3"`` or ``2024`` stands for. Raise ValueError.

    >>> parse_release("2.30")
    NcclRelease(version=(2, 30), year=None)
    """
    if isinstance(value, NcclRelease):
        return value
    text = value.text if isinstance(value, TomlFloat) else str(value)
    version = re.fullmatch(r"([12])\.([0-9]{1,2})(\.[0-9]{1,2}(-[0-9]{1,2})?)?", text)
    if version and not isinstance(value, bool):
        return NcclRelease(version=(int(version[1]), int(version[2])))
    if re.fullmatch(r"20[0-9]{2}(\.[0-9]+)?", text):
        return NcclRelease(year=float(text))
    raise ValueError("give a version like 2.19 or a year like 2024")


ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
# How far apart two devices are; each level includes those before it. LOC: never P2P, not even over NVLink; NVL: over
# NVLink; PIX: behind one PCIe switch; PXB: behind several, without the CPU between them; PHB: over the CPU's host
# bridge, on one NUMA node; SYS: over the link between two CPUs. NODE of `nvidia-smi topo -m` is no word of NCCL's.
LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
OLD_NUMBERS = ("LOC", "PIX", "PXB", "PHB", "SYS")  # levelsOldToNew in paths.cc; a larger number is the last
FUNCTIONS = {  # NCCL's names of collectives, in lower case
    name.replace("_", ""): name for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
}
BUFFER_BYTES = (64 * 2**10, 2**30)  # eight slots of at least 8 KiB, and at most a GiB a channel and peer: ours
THREADS = (64, 128, 256, 512)  # user guide, NCCL_NTHREADS
_SPELLINGS = {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain", "nvlstree": "nvls_tree"}


@dataclass(frozen=True)
class NcclSettings:
    """Settings of a run. None: NCCL decides, or what the system's description says.

    ``algo`` and ``proto`` list what is allowed, or after ``^`` what is not, as in ``NCCL_ALGO=^tree,nvls``; from NCCL
    2.24 also for one collective each, as in ``ring;allreduce:tree``. The levels are words of ``LEVELS`` or NCCL's old
    numbers from 0 on.

    >>> NcclSettings(algo="^tree").allowed_algorithms()
    ('ring', 'collnet_direct', 'collnet_chain', 'nvls', 'nvls_tree', 'pat')
    """

    version: str | None = None  # "2.21", or "2.21.5"
    algo: str | None = None  # NCCL_ALGO
    proto: str | None = None  # NCCL_PROTO
    min_channels: int | None = None  # NCCL_MIN_NCHANNELS
    max_channels: int | None = None  # NCCL_MAX_NCHANNELS (or NCCL_MAX_CTAS)
    p2p_level: str | None = None  # NCCL_P2P_LEVEL: how far apart two GPUs may be that write into each other's memory
    p2p_disable: bool | None = None  # NCCL_P2P_DISABLE
    shm_disable: bool | None = None  # NCCL_SHM_DISABLE: no traffic through host memory, but over the network
    net_gdr_level: str | None = None  # NCCL_NET_GDR_LEVEL: how far a GPU may be from a NIC that reads its memory
    nvls: bool | None = None  # NCCL_NVLS_ENABLE
    collnet: bool | None = None  # NCCL_COLLNET_ENABLE: reduction in the network (SHARP)
    buffer_bytes: int | None = None  # NCCL_BUFFSIZE: of Simple, a channel and peer
    threads: int | None = None  # NCCL_NTHREADS: of a channel, LL and Simple

    def __post_init__(self) -> None:
        """Raise InputError for a value that NCCL would not take."""
        self.parsed_version()
        self.allowed_algorithms()
        self.allowed_protocols()
        for key in ("p2p_level", "net_gdr_level"):
            _check_level(key, getattr(self, key))
        for key in ("min_channels", "max_channels"):
            _check_range(key, getattr(self, key), 1, 64)  # NCCL's MAXCHANNELS, above which it cuts
        _check_range("buffer_bytes", self.buffer_bytes, *BUFFER_BYTES)
        if self.threads is not None and self.threads not in THREADS:
            raise InputError(f"{VARIABLES['threads']} = {self.threads!r}; NCCL takes {', '.join(map(str, THREADS))}")
        if self.min_channels and self.max_channels and self.min_channels > self.max_channels:
            raise InputError(f"min_channels = {self.min_channels} is more than max_channels = {self.max_channels}")

    def parsed_version(self) -> tuple[int, int] | None:
        """Return the version as numbers, None where it is not said. Raise InputError."""
        return None if self.version is None else _parse_version(self.version)

    def allowed_algorithms(self, collective: str = "all_reduce") -> tuple[str, ...]:
        """Return the algorithms that ``algo`` allows, in NCCL's order. Raise InputError for an unknown one."""
        return _read_choices("algo", self.algo, ALGORITHMS, collective)

    def allowed_protocols(self, collective: str = "all_reduce") -> tuple[str, ...]:
        """Return the protocols that ``proto`` allows, in NCCL's order. Raise InputError for an unknown one."""
        return _read_choices("proto", self.proto, PROTOCOLS, collective)


VARIABLES = {  # of each setting the environment variable that says it
    "version": "NCCL_VERSION",
    "algo": "NCCL_ALGO",
    "proto": "NCCL_PROTO",
    "min_channels": "NCCL_MIN_NCHANNELS",
    "max_channels": "NCCL_MAX_NCHANNELS",
    "p2p_level": "NCCL_P2P_LEVEL",
    "p2p_disable": "NCCL_P2P_DISABLE",
    "shm_disable": "NCCL_SHM_DISABLE",
    "net_gdr_level": "NCCL_NET_GDR_LEVEL",
    "nvls": "NCCL_NVLS_ENABLE",
    "collnet": "NCCL_COLLNET_ENABLE",
    "buffer_bytes": "NCCL_BUFFSIZE",
    "threads": "NCCL_NTHREADS",
}


def _parse_version(text: str) -> tuple[int, int]:
    try:
        version = parse_release(text).version
    except ValueError:
        version = None
    if version is None:
        raise InputError(f"version = {text!r}; give two or three numbers that begin with 1 or 2, as in 2.21.5")
    return version


def _read_choices(key: str, text: str | None, known: tuple[str, ...], collective: str) -> tuple[str, ...]:
    """Return what a list allows for a collective: the part with its name, else the first part if that has no name."""
    found = known
    for number, part in enumerate(text.split(";") if text is not None else ()):
        name, colon, words = part.rpartition(":")
        if colon and name.strip().lower() not in FUNCTIONS:
            raise InputError(f"{key} = {text!r}: {name!r} is no collective; {suggest(name, FUNCTIONS)}")
        if number and not colon:
            raise InputError(
                f"{key} = {text!r}: only the first part may go without a collective, as in ring;reduce:tree"
            )
        listed = _read_list(key, words.strip(), known)
        if not colon or FUNCTIONS[name.strip().lower()] == collective:
            found = listed
    return found


def _read_list(key: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = [word.strip().lower() for word in text.removeprefix("^").split(",")]
    words = [_SPELLINGS.get(word, word) for word in words]
    for word in words:
        if word not in known:
            raise InputError(f"{key} = {text!r}: NCCL has no {word!r}; {suggest(word, known)}")
    return tuple(name for name in known if (name in words) != text.startswith("^"))


def _check_level(key: str, level: str | None) -> None:
    if level is not None and level not in LEVELS and not _is_old_number(level):
        capitals = "; NCCL reads capitals only" if level.upper() in LEVELS else ""
        raise InputError(f"{key} = {level!r}; there are {', '.join(LEVELS)}{capitals}")


def _check_range(key: str, count: int | None, low: int, high: int) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not low <= count <= high):
        raise InputError(f"{VARIABLES[key]} = {count!r}; give a whole number from {low} to {high}")


def level_rank(level: str) -> int:
    """Return how far a level reaches, as a number that grows with the distance.

    >>> level_rank("PIX") < level_rank("SYS") == level_rank("9")
    True
    """
    word = OLD_NUMBERS[min(int(level), len(OLD_NUMBERS) - 1)] if _is_old_number(level) else level
    return LEVELS.index(word)


def _is_old_number(level: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", level) is not None
