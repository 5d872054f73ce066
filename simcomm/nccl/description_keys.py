"""The keys of a described system or machine, and what each may be: strict, for files of strangers."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from collectives.errors import InputError
from collectives.toml_floats import TomlFloat
from simcomm.nccl.gpus import Generation


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


Count = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class Keys(BaseModel):
    """Every key of a line; which of them a system needs, and their defaults, are not said here."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    machine: str | None = None
    preset: str | None = None  # of machines: where the hardware catalogue has it
    nodes: Count | None = None
    gpus: Count | None = None
    gpu: str | None = None
    generation: Generation | None = None
    link: Literal["nvswitch", "mesh", "bridge", "xgmi", "pcie", "cpu"] | None = None
    nvlink: Annotated[float, Field(ge=0, le=1e5, allow_inf_nan=False)] | None = None
    pcie: Annotated[int, Field(ge=1, le=6)] | None = None
    lanes: Literal[1, 2, 4, 8, 16, 32] | None = None
    layout: Literal["switch", "switches", "socket", "two"] | None = None
    cpu: Literal["amd", "intel", "arm"] | None = None
    p2p: bool | None = None
    p2p_refused: bool | None = None
    p2p_level: Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"] | None = None
    host: Literal["desktop", "server"] | None = None
    domain: Count | None = None
    net: Literal["ib", "efa1", "efa2", "efa3", "slingshot", "fastrak", "tcp", "opa"] | None = None
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
    """Return the keys that a line states, checked. Raise InputError that begins with ``where`` and names the key.

    >>> read_keys("system mine", {"nodes": 2, "nic": 12.5})
    {'nodes': 2, 'nic': 12.5}
    """
    try:
        keys = Keys(**line)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "line"
        if first["type"] == "extra_forbidden":
            raise InputError(f"{where}: unknown key {key!r}; there are {', '.join(Keys.model_fields)}") from error
        raise InputError(f"{where}: {key} = {first['input']!r}: {first['msg']}") from error
    return {key: getattr(keys, key) for key in Keys.model_fields if key in keys.model_fields_set}
