"""``[cluster.terms]`` of a scenario: which terms of TCP a prediction knows."""

from math import inf
from pathlib import Path

import pytest
from scenario_texts import ASKS, STAR, write

from collectives import InputError, TcpTerms
from collectives.records.calibration import Calibration, FittedLine
from scenarios.loader import load

LINE = FittedLine(2e-5, 1e-9, 0.0)
MEASURED = Calibration(2, 1, one_way=LINE, both_ways=LINE, reduction=LINE)


def terms(tmp_path: Path, *given: str, transport: str = "gloo-tcp") -> TcpTerms:
    sets = [f"cluster.terms.{each}" for each in given]
    cluster = load(write(tmp_path, STAR + f'transport = "{transport}"\n' + ASKS), sets).cluster
    found = cluster.calibrated_by(MEASURED).transport
    assert found is not None
    assert found.tcp is not None
    assert found.goodput == 1.0
    return found.tcp


def test_without_the_table_a_cluster_has_no_terms(tmp_path: Path):
    cluster = load(write(tmp_path, STAR + 'transport = "gloo-tcp"\n' + ASKS)).cluster
    assert cluster.calibrated_by(MEASURED).transport == MEASURED.transport(1448 / 1538)


@pytest.mark.parametrize("transport", ["ideal", "gloo-tcp"])
def test_each_term_has_a_value_or_is_off(tmp_path: Path, transport: str):
    found = terms(tmp_path, "window=147 kB", "send_buffer=1 MB", "burst=4096 B", "cores=2", transport=transport)
    assert found == TcpTerms(window=147e3, send_buffer=1e6, burst=4096.0, cores=2)
    assert terms(tmp_path, "pipeline=true", transport=transport) == TcpTerms()
    off = ("cores", "window", "piece", "send_buffer", "burst", "headers", "acknowledgements", "pipeline", "notices")
    assert terms(tmp_path, *(f"{key}=false" for key in off), transport=transport) == TcpTerms(
        pipeline=False, notices=False, send_buffer=0.0, window=inf, header=0.0, burst=0.0, acknowledgement=0.0
    )


@pytest.mark.parametrize(
    "wrong", ["windows=147 kB", "window=true", "pipeline=1", "burst=-1 kB", "cores=0", "cores=true"]
)
def test_what_is_no_term_is_refused(tmp_path: Path, wrong: str):
    with pytest.raises(InputError, match=r"cluster\.terms"):
        terms(tmp_path, wrong)
