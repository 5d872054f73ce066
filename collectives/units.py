"""Quantities with units: read strictly, kept in bytes and seconds, shown for people.

Ambiguous spellings (``25 Gb/s``, ``100Gbps``) and bare numbers are refused rather than guessed.
"""

import re

from collectives.errors import InputError

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

SIZES = {f"{prefix}B": factor for prefix, factor in {**_DECIMAL, **_BINARY}.items()}
RATES = {
    **{f"{prefix}bit/s": factor / 8 for prefix, factor in _DECIMAL.items()},
    **{f"{unit}/s": float(factor) for unit, factor in SIZES.items()},
}
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z/]*)", re.IGNORECASE)


def _parse(text: object, units: dict[str, float], what: str, example: str) -> float:
    accepted = f"write a number and one of {', '.join(units)}, for example {example!r}"
    if not isinstance(text, str):
        raise InputError(f"{text!r} is no {what}: a bare number has no unit; {accepted}")
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise InputError(f"{text!r} is no {what}; {accepted}")
    return float(match[1]) * units[match[2]]


def parse_bandwidth(text: object) -> float:
    """Bytes per second of a text like ``"10 Gbit/s"`` or ``"1.25 GB/s"``. Raises InputError, also for zero."""
    value = _parse(text, RATES, "bandwidth", "10 Gbit/s")
    if value <= 0:
        raise InputError(f"{text!r} is no bandwidth: it must be above zero")
    return value


def parse_latency(text: object) -> float:
    """Seconds of a text like ``"5 us"``; ``"0 us"`` is allowed. Raises InputError."""
    return _parse(text, TIMES, "time", "5 us")


def parse_size(text: object) -> int:
    """Whole bytes of a text like ``"64 KiB"``. Raises InputError, also for a fraction of a byte."""
    value = _parse(text, SIZES, "size", "64 KiB")
    if value != int(value):
        raise InputError(f"{text!r} is no size: it is not a whole number of bytes")
    return int(value)


def format_size(nbytes: float) -> str:
    """``65536`` as ``64 KiB``; binary units, for tables and pictures."""
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= SIZES[unit]:
            return f"{nbytes / SIZES[unit]:.4g} {unit}"
    return f"{nbytes:.4g} B"


def format_time(seconds: float) -> str:
    """``0.0123`` as ``12.3 ms``, for tables and pictures."""
    for unit in ("s", "ms", "us"):
        if abs(seconds) >= TIMES[unit]:
            return f"{seconds / TIMES[unit]:.3g} {unit}" if abs(seconds) < 1000 * TIMES[unit] else f"{seconds:.0f} s"
    return f"{seconds / TIMES['ns']:.3g} ns"


def format_bandwidth(bytes_per_second: float) -> str:
    """``1.25e9`` as ``10 Gbit/s``, for tables and pictures."""
    for unit in ("Tbit/s", "Gbit/s", "Mbit/s", "kbit/s"):
        if bytes_per_second >= RATES[unit]:
            return f"{bytes_per_second / RATES[unit]:.4g} {unit}"
    return f"{bytes_per_second * 8:.4g} bit/s"
