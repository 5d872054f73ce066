"""Define NCCL's versions and its environment variables.

Sources: NCCL's user guide, "Environment Variables" (docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html), and
``src/graph/tuning.cc`` and ``src/graph/paths.cc`` (``ncclTopoCheckP2p``, ``ncclGetLevel``) of NVIDIA/nccl.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from collectives.errors import InputError
from collectives.quoting import suggest
from collectives.units import TomlFloat

RELEASES: dict[tuple[int, int], float] = {  # release dates, in years
    (2, 0): 2017.6, (2, 1): 2017.9, (2, 2): 2018.4, (2, 3): 2018.7, (2, 4): 2019.1, (2, 5): 2019.9, (2, 6): 2020.2,
    (2, 7): 2020.5, (2, 8): 2020.9, (2, 9): 2021.3, (2, 10): 2021.5, (2, 11): 2021.7, (2, 12): 2022.2, (2, 13): 2022.5,
    (2, 14): 2022.7, (2, 15): 2022.8, (2, 16): 2023.0, (2, 17): 2023.2, (2, 18): 2023.4, (2, 19): 2023.9,
    (2, 20): 2024.2, (2, 21): 2024.4, (2, 22): 2024.5, (2, 23): 2024.7, (2, 24): 2025.0, (2, 25): 2025.1,
    (2, 26): 2025.2, (2, 27): 2025.4, (2, 28): 2025.8, (2, 29): 2026.0, (2, 30): 2026.3, (2, 31): 2026.6,
}  # fmt: skip


class NcclRelease(NamedTuple):
    """An NCCL version as two numbers, or the year in which it was used."""

    version: tuple[int, int] | None = None
    year: float = 0.0

    def number(self) -> tuple[int, int]:
        """Return the version. If only the year is known, return the newest version at that time.

        A year without a fraction means shortly before mid-year.

        >>> NcclRelease(year=2023).number()
        (2, 18)
        """
        if self.version is not None:
            return self.version
        when = self.year + 0.45 if self.year == int(self.year) else self.year
        older = [release for release, appeared in RELEASES.items() if appeared <= when]
        return older[-1] if older else (2, 0)


def parse_release(value: object) -> NcclRelease:
    """Parse an NCCL version such as ``2.19`` or ``"2.19.3"``, or a year such as ``2024``. Raise ValueError otherwise.

    >>> parse_release("2.30")
    NcclRelease(version=(2, 30), year=0.0)
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
# The distance of two devices; each level includes the levels before it. LOC: never P2P, not even over NVLink. NVL:
# NVLink. PIX: one PCIe switch. PXB: several PCIe switches without a CPU between them. PHB: the host bridge of a CPU, on
# one NUMA node. SYS: the link between two CPUs. NCCL does not know NODE of `nvidia-smi topo -m`.
LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
OLD_NUMBERS = ("LOC", "PIX", "PXB", "PHB", "SYS")  # levelsOldToNew in paths.cc; a larger number means the last
FUNCTIONS = {  # NCCL's names of collectives, in lower case
    name.replace("_", ""): name for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
}
BUFFER_BYTES = (64 * 2**10, 2**30)  # eight slots of at least 8 KiB; the maximum is Ringlab's
THREADS = (64, 128, 256, 512)  # user guide, NCCL_NTHREADS
_SPELLINGS = {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain", "nvlstree": "nvls_tree"}


VARIABLES = {  # each setting's environment variable
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


@dataclass(frozen=True)
class NcclSettings:
    """A run's NCCL variables. None means the value in the system description or, if it has none, NCCL's default.

    ``algo`` and ``proto`` list allowed values or, after ``^``, excluded values, as in ``NCCL_ALGO=^tree,nvls``. From
    NCCL 2.24 on, they can contain a list for one collective, as in ``ring;allreduce:tree``. ``p2p_level`` and
    ``net_gdr_level`` are words of ``LEVELS`` or NCCL's old numbers.

    >>> NcclSettings(algo="^tree").allowed_algorithms()
    ('ring', 'collnet_direct', 'collnet_chain', 'nvls', 'nvls_tree', 'pat')
    """

    version: str | None = None  # "2.21", or "2.21.5"
    algo: str | None = None
    proto: str | None = None
    min_channels: int | None = None
    max_channels: int | None = None
    p2p_level: str | None = None  # maximum distance of two GPUs that access each other's memory
    p2p_disable: bool | None = None
    shm_disable: bool | None = None  # host memory off: its traffic uses the network
    net_gdr_level: str | None = None  # maximum distance of a GPU and a NIC that reads its memory
    nvls: bool | None = None
    collnet: bool | None = None  # reduction in the network (SHARP)
    buffer_bytes: int | None = None  # per channel and peer, with Simple
    threads: int | None = None  # per channel, with LL and Simple

    def __post_init__(self) -> None:
        """Raise InputError for a value that NCCL would reject."""
        self.parsed_version()
        self.allowed_algorithms()
        self.allowed_protocols()
        for key in ("p2p_level", "net_gdr_level"):
            _check_level(key, getattr(self, key))
        for key in ("min_channels", "max_channels"):
            _check_range(key, getattr(self, key), 1, 64)  # NCCL's MAXCHANNELS
        _check_range("buffer_bytes", self.buffer_bytes, *BUFFER_BYTES)
        if self.threads is not None and self.threads not in THREADS:
            raise InputError(
                f"{VARIABLES['threads']} must be one of {', '.join(map(str, THREADS))}, not {self.threads!r}"
            )
        if self.min_channels and self.max_channels and self.min_channels > self.max_channels:
            raise InputError(f"min_channels ({self.min_channels}) must not exceed max_channels ({self.max_channels})")

    def parsed_version(self) -> tuple[int, int] | None:
        """Return the version as two numbers, or None if it is not set.

        Raise InputError if it is not a version such as 2.21.5.
        """
        if self.version is None:
            return None
        try:
            version = parse_release(self.version).version
        except ValueError:
            version = None
        if version is None:
            raise InputError(f"version must be two or three numbers such as 2.21.5, not {self.version!r}")
        return version

    def allowed_algorithms(self, collective: str = "all_reduce") -> tuple[str, ...]:
        """Return the algorithms that ``algo`` allows, in NCCL's order. Raise InputError for unknown algorithms."""
        return _read_choices("algo", self.algo, ALGORITHMS, collective)

    def allowed_protocols(self, collective: str = "all_reduce") -> tuple[str, ...]:
        """Return the protocols that ``proto`` allows, in NCCL's order. Raise InputError for unknown protocols."""
        return _read_choices("proto", self.proto, PROTOCOLS, collective)


def _read_choices(key: str, text: str | None, known: tuple[str, ...], collective: str) -> tuple[str, ...]:
    """Return the words that ``text`` allows for a collective: its own list, or the list that names no collective.

    If neither exists, all ``known`` words are allowed. Raise InputError if the text is invalid.
    """
    choices = known
    for number, part in enumerate(text.split(";") if text is not None else ()):
        name, colon, words = part.rpartition(":")
        if colon and name.strip().lower() not in FUNCTIONS:
            raise InputError(f"{key} = {text!r}: unknown collective {name!r}; {suggest(name, FUNCTIONS)}")
        if number and not colon:
            raise InputError(f"{key} = {text!r}: every list after the first needs a collective, as in ring;reduce:tree")
        listed = _read_list(key, words.strip(), known)
        if not colon or FUNCTIONS[name.strip().lower()] == collective:
            choices = listed
    return choices


def _read_list(key: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = [word.strip().lower() for word in text.removeprefix("^").split(",")]
    words = [_SPELLINGS.get(word, word) for word in words]
    for word in words:
        if word not in known:
            raise InputError(f"{key} = {text!r}: unknown value {word!r}; {suggest(word, known)}")
    return tuple(name for name in known if (name in words) != text.startswith("^"))


def _check_level(key: str, level: str | None) -> None:
    if level is not None and level not in LEVELS and not _is_old_number(level):
        capitals = "; use capital letters" if level.upper() in LEVELS else ""
        raise InputError(f"{key} must be {', '.join(LEVELS)} or a number, not {level!r}{capitals}")


def _check_range(key: str, count: int | None, low: int, high: int) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not low <= count <= high):
        raise InputError(f"{VARIABLES[key]} must be an integer from {low} to {high}, not {count!r}")


def level_rank(level: str) -> int:
    """Return the position of a NCCL_P2P_LEVEL in order of distance, so that levels can be compared.

    >>> level_rank("PIX") < level_rank("SYS") == level_rank("9")
    True
    """
    word = OLD_NUMBERS[min(int(level), len(OLD_NUMBERS) - 1)] if _is_old_number(level) else level
    return LEVELS.index(word)


def _is_old_number(level: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", level) is not None
