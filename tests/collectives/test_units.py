"""Parse and format quantities: valid ones are exact, and ambiguous ones are rejected."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import InputError
from collectives.units import (
    RATES,
    SIZES,
    Bandwidth,
    Latency,
    format_bandwidth,
    format_size,
    format_time,
    parse_bandwidth,
    parse_latency,
    parse_size,
)
from simcomm import star

READ: dict[Callable[[str], float], dict[str, float]] = {
    parse_size: {
        "0 B": 0, "1 B": 1, "64 KiB": 65536, "64KiB": 65536, " 1.5 kB ": 1500, "1 MiB": 2**20, "8 MB": 8_000_000,
        "1.001 MB": 1_001_000, "2e3 B": 2000, "1 GiB": 2**30, "3 TB": 3 * 10**12,  # 1.001 * 1e6 is no whole float
    },
    parse_bandwidth: {
        "8 bit/s": 1.0, "10 Gbit/s": 1.25e9, "1.25 GB/s": 1.25e9, "200 Mbit/s": 25e6, "1 GiB/s": float(2**30),
        "0.5 Tbit/s": 62.5e9,
    },
    parse_latency: {"0 us": 0.0, "3 us": 3e-6, "12 ms": 12e-3, "250 ns": 250e-9, "1.5 s": 1.5},
}  # fmt: skip


@pytest.mark.parametrize(("parse", "text"), [(parse, text) for parse, table in READ.items() for text in table])
def test_quantities_are_parsed_exactly(parse: Callable[[str], float], text: str) -> None:
    assert parse(text) == READ[parse][text]


AMBIGUOUS = ["25 Gb/s", "100Gbps", "100 gbit/s", "10 Gbit", "10 GB", "10 Gbit/", "10 Kibit/s", "1 mbit/s"]
REFUSED: dict[Callable[[str], float], tuple[str, list[object]]] = {
    parse_bandwidth: (
        "is not a bandwidth", [*AMBIGUOUS, "0 bit/s", "-1 Gbit/s", "", "fast", "1e999 bit/s", "1,5 Gbit/s", 10, True],
    ),
    parse_size: (
        "is not a size", ["64 kb", "64 K", "64 Kb", "64 kbit", "64", "0.5 B", "1.1 KiB", "٣ B", "1 B B", 64, 64.0],
    ),
    parse_latency: ("is not a time", ["5", "5 usec", "5 µ", "5 m", "5 S", "-5 us", "5 us/s", 5, 0, None]),
}  # fmt: skip


@pytest.mark.parametrize(("parse", "text"), [(parse, text) for parse, (_, texts) in REFUSED.items() for text in texts])
def test_invalid_quantity_error_quotes_the_value(parse: Callable[[object], float], text: object) -> None:
    with pytest.raises(InputError, match=f"{re.escape(repr(text))} .*{REFUSED[parse][0].removeprefix('is ')}"):
        parse(text)


@given(st.integers(1, 10**6), st.sampled_from(sorted(SIZES)), st.sampled_from(sorted(RATES)))
def test_size_and_bandwidth_units_multiply_the_number(number: int, size: str, rate: str) -> None:
    assert parse_size(f"{number} {size}") == number * SIZES[size]
    assert parse_bandwidth(f"{number} {rate}") == float(number * RATES[rate])


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_size(0), "0 B"),
        (format_size(65536), "64 KiB"),
        (format_size(44_726_568), "42.65 MiB"),
        (format_time(0), "0 ns"),
        (format_time(0.0123), "12.3 ms"),
        (format_time(0.9996), "1 s"),
        (format_time(999.6e-6), "1 ms"),
        (format_time(4000), "4000 s"),
        (format_bandwidth(1.25e9), "10 Gbit/s"),
        (format_bandwidth(12.5), "100 bit/s"),
    ],
)
def test_quantity_is_formatted_with_a_unit(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.floats(1e-9, 1e3))
def test_formatted_time_round_trips_to_three_digits(seconds: float) -> None:
    assert parse_latency(format_time(seconds)) == pytest.approx(seconds, rel=5.1e-3)


def test_parse_accepts_an_already_parsed_quantity() -> None:
    bandwidth, latency = Bandwidth(parse_bandwidth("10 Gbit/s")), Latency(parse_latency("5 us"))
    assert (parse_bandwidth(bandwidth), parse_latency(latency)) == (1.25e9, 5e-6)
    assert type(parse_bandwidth(bandwidth)) is float
    assert star(2, bandwidth, latency).graph.edges["h0", "s0"] == {"bandwidth": 1.25e9, "latency": 5e-6}
    for parse, value in ((parse_bandwidth, latency), (parse_latency, bandwidth), (parse_bandwidth, 1.25e9)):
        with pytest.raises(InputError, match="the unit is missing"):
            parse(value)
