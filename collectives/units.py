"""Parse quantities with units, convert them to bytes and seconds, and format them for output.

Ambiguous spellings (``25 Gb/s``, ``100Gbps``) and numbers without a unit are rejected. Units are exact fractions.
Therefore, ``"1.001 MB"`` is a whole number of bytes, and ``"3 us"`` is exactly the float ``3e-6``.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.quoting import quote

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

SIZES = {f"{prefix}B": factor for prefix, factor in {**_DECIMAL, **_BINARY}.items()}
RATES = {
    **{f"{prefix}bit/s": Fraction(factor, 8) for prefix, factor in _DECIMAL.items()},
    **{f"{unit}/s": Fraction(factor) for unit, factor in SIZES.items()},
}
TIMES = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}

_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z/]*)")


_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*((?:[kMGT]i?)B?)")


def _parse(text: object, units: Mapping[str, Fraction | int], quantity: str, example: str) -> Fraction:
    accepted = f"write a number and one of {', '.join(units)}, for example {quote(_closest(text, units) or example)}"
    if not isinstance(text, str):
        raise InputError(f"{quote(text)} is not a {quantity}: the unit is missing; {accepted}")
    number, unit = _read(text.strip())
    if unit not in units:
        raise InputError(f"{quote(text)} is not a {quantity}; {accepted}")
    return number * units[unit]


def _closest(text: object, units: Mapping[str, Fraction | int]) -> str:
    """Return the quantity that an invalid text probably means, such as ``100 Gbit/s``. Empty if there is no guess.

    >>> _closest("2.5GbE", RATES), _closest("100Gbps", RATES), _closest("64", SIZES)
    ('2.5 Gbit/s', '100 Gbit/s', '')
    """
    number = _NUMBER.match(text) if isinstance(text, str) else None
    unit = next((unit for unit in units if number and unit.startswith(number[2])), "")
    return f"{number[1]} {unit}" if number and unit else ""


@lru_cache(maxsize=1 << 15)
def _read(text: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text)
    return (Fraction(0), "") if match is None else (Fraction(match[1]), match[2])


class Bandwidth(float):
    """A bandwidth in bytes/s. Functions that build clusters accept it in place of text such as ``10 Gbit/s``."""


class Latency(float):
    """A latency in seconds. Functions that build clusters accept it in place of text such as ``5 us``."""


def parse_bandwidth(text: object) -> float:
    """Parse a bandwidth such as ``"10 Gbit/s"`` or ``"1.25 GB/s"`` and return it in bytes/s.

    A ``Bandwidth`` is also accepted. Raise InputError if the text is invalid or the bandwidth is zero.

    >>> parse_bandwidth("10 Gbit/s")
    1250000000.0
    """
    if isinstance(text, Bandwidth):
        return float(text)
    value = _parse(text, RATES, "bandwidth", "10 Gbit/s")
    if value <= 0:
        raise InputError(f"{quote(text)} is not a bandwidth: it must be positive")
    return float(value)


def parse_latency(text: object) -> float:
    """Parse a time such as ``"5 us"`` or ``"0 us"`` and return it in seconds.

    A ``Latency`` is also accepted. Raise InputError if the text is not a time.

    >>> parse_latency("5 us")
    5e-06
    """
    if isinstance(text, Latency):
        return float(text)
    return float(_parse(text, TIMES, "time", "5 us"))


def parse_size(text: object) -> int:
    """Parse a size such as ``"64 KiB"`` and return it in bytes.

    Raise InputError if the text is invalid or the size is not a whole number of bytes.

    >>> parse_size("64 KiB")
    65536
    """
    value = _parse(text, SIZES, "size", "64 KiB")
    if value.denominator != 1:
        raise InputError(f"{quote(text)} is not a size: it is not a whole number of bytes")
    return int(value)


def as_bytes(value: object, name: str, instead: str = "") -> int:
    """Return a size in bytes, given as an integer or as text such as "1 MiB". Raise InputError for any other value.

    ``name`` is the argument's name in the message. ``instead`` names other accepted values.

    >>> as_bytes(1024, "nbytes"), as_bytes("1 KiB", "nbytes")
    (1024, 1024)
    """
    if isinstance(value, str):
        return parse_size(value)
    return check_whole_number(name, value, at_least=0, instead=f" or text such as '1 MiB'{instead}")


def format_size(nbytes: float) -> str:
    """Format a size in bytes in a suitable unit with four significant digits. From 10,000 GiB on, show whole GiB.

    >>> format_size(65536), format_size(20_000 * 2**30)
    ('64 KiB', '20,000 GiB')
    """
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= SIZES[unit]:
            shown = nbytes / SIZES[unit]
            return f"{shown:.4g} {unit}" if shown < 9999.5 else f"{shown:,.0f} {unit}"
    return f"{nbytes:.4g} B"


def count(number: int, noun: str) -> str:
    """Return a number followed by a noun, which gets a plural "s" unless the number is 1.

    >>> count(1, "host"), count(8, "host")
    ('1 host', '8 hosts')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_time(seconds: float) -> str:
    """Format a time in a suitable unit with three significant digits. From 1,000 s on, show whole seconds.

    >>> format_time(0.0123)
    '12.3 ms'
    """
    shown = float(f"{seconds:.3g}")  # so that 999.7 us is 1 ms, not 1e+03 us
    if abs(shown) >= 1000:
        return f"{seconds:.0f} s"
    unit = next((unit for unit in ("s", "ms", "us") if abs(shown) >= float(TIMES[unit])), "ns")
    return f"{float(shown / TIMES[unit]):.3g} {unit}"


def format_bandwidth(bytes_per_second: float) -> str:
    """Format bytes per second in bit/s with four significant digits.

    >>> format_bandwidth(1.25e9)
    '10 Gbit/s'
    """
    for unit in ("Tbit/s", "Gbit/s", "Mbit/s", "kbit/s"):
        if bytes_per_second >= RATES[unit]:
            return f"{bytes_per_second / RATES[unit]:.4g} {unit}"
    return f"{bytes_per_second * 8:.4g} bit/s"


class TomlFloat(float):
    """A float from a TOML file that keeps its original text. Otherwise, version 2.30 of NCCL would become 2.3.

    >>> TomlFloat("2.30").text
    '2.30'
    """

    def __new__(cls, text: str) -> "TomlFloat":
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str
