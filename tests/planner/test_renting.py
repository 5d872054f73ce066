"""Instance types: the price list and its errors, candidates, cost estimates, the Pareto front."""

import re
from dataclasses import replace
from datetime import date
from itertools import permutations
from pathlib import Path

import pytest

from collectives.errors import InputError
from collectives.records.model_profile import find_model_profile
from planner.jobs import Job
from planner.prediction import StepPrediction
from planner.renting.candidates import Candidate, CandidateSteps, estimate_cost, list_candidates
from planner.renting.prices import COLUMNS, InstanceType, read_prices
from planner.search import pareto_front
from simcomm.cluster.hardware import parts

ROW = {
    "InstanceType": "box", "vCPUs": "8", "MemoryGiB": "64", "AcceleratorName": "A100", "AcceleratorCount": "4",
    "GpuInfo": "", "Price": "4.0", "SpotPrice": "1.5", "Region": "here", "Provider": "Us", "Gpu": "A100 40GB SXM",
    "Machine": "", "Interconnect": "NVSwitch", "P2P": "", "NicGbps": "80", "Date": "2026-01-31",
    "Source": "us",
}  # fmt: skip


def price_file(folder: Path, drop: tuple[str, ...] = (), **changes: str) -> Path:
    columns = [name for name in COLUMNS if name not in drop]
    path = folder / "mine.csv"
    path.write_text(f"{','.join(columns)}\n{','.join({**ROW, **changes}[name] for name in columns)}\n")
    return path


def instance(**changes: object) -> InstanceType:
    usual = InstanceType(
        "box", "Us", "here", "A100 40GB SXM", 4, 8.0, 4.0, None, "NVSwitch", True, 1e10, date(2026, 1, 1), "us"
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_price_list_gives_prices_dates_and_interconnects(tmp_path: Path) -> None:
    (read,) = read_prices(price_file(tmp_path))
    assert (read.name, read.gpus, read.price, read.spot_price) == ("Us box", 4, 4.0, 1.5)
    assert (read.nic_bandwidth, read.dated) == (1e10, date(2026, 1, 31))
    machine = {"Machine": "p4d.24xlarge", "AcceleratorCount": "8", "Interconnect": "", "NicGbps": ""}
    (known,) = read_prices(price_file(tmp_path, **machine, SpotPrice="0.00"))
    assert (known.interconnect, known.nic_bandwidth) == ("NVSwitch", 5e10)
    assert known.spot_price is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Price": "cheap"}, "line 2: Price must be a positive number or empty, not 'cheap'"),
        ({"Price": "", "SpotPrice": "0"}, "line 2: Price and SpotPrice are both empty or 0"),
        ({"AcceleratorCount": "1.5"}, "line 2: AcceleratorCount must be an integer from 1 to"),
        ({"Gpu": "A100"}, "line 2: Gpu 'A100' is not in the hardware catalog; did you mean"),
        ({"Machine": "dgx-h100"}, "line 2: Machine dgx-h100 has 8 x H100 SXM, not 4 x A100 40GB SXM"),
        (
            {"Machine": "p4d.24xlarge", "AcceleratorCount": "8"},
            "because Machine p4d.24xlarge defines it",
        ),
        ({"Interconnect": ""}, "line 2: Interconnect of 4 GPUs must be one of NVSwitch, "),
        ({"P2P": "maybe"}, "line 2: P2P must be yes, no or empty"),
        ({"Date": "2026"}, "line 2: Date must be a day such as 2026-08-26, not '2026'"),
        ({"Source": ""}, "line 2: Source must not be empty"),
    ],
)
def test_price_list_error_names_line_and_column(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read_prices(price_file(tmp_path, **changes))


def test_price_list_error_names_missing_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine\.csv, line 1: the price list lacks 2 columns: SpotPrice, Provider;"):
        read_prices(price_file(tmp_path, drop=("Provider", "SpotPrice")))


def test_every_built_in_price_has_a_source() -> None:
    prices = read_prices()
    assert all(price.source.startswith("https://") for price in prices)
    assert len({(price.name, price.region, price.spot_price) for price in prices}) == len(prices)
    assert all(price.gpu in parts("GPU") for price in prices)


def test_pareto_front_contains_all_undominated_points() -> None:
    points = [(float(7 * k % 11), float(k * k % 13)) for k in range(40)]
    beaten = {b for a, b in permutations(points, 2) if a != b and a[0] <= b[0] and a[1] <= b[1]}
    assert {points[place] for place in pareto_front(points)} == {*points} - beaten
    assert pareto_front([(1.0, 1.0)] * 3) == [0]


def test_instance_without_known_network_gives_single_nodes_only() -> None:
    candidates = [*list_candidates([instance(nic_bandwidth=None), instance(spot_price=1.0)], most_nodes=2, spot=True)]
    assert [(candidate.nodes, candidate.market) for candidate in candidates] == [
        (1, "on demand"), (1, "on demand"), (1, "spot"), (2, "on demand"), (2, "spot"),
    ]  # fmt: skip
    assert candidates[-1].price == 2.0


def test_cost_interval_follows_from_the_rate_interval() -> None:
    """The low end of the rate is the high end of the cost."""
    (step,) = CandidateSteps(Job(find_model_profile("gpt2"), 8, precision="bf16")).predict([(instance(), 2)])
    assert isinstance(step, StepPrediction)
    cost = estimate_cost(Candidate(instance(), 2, "on demand"), step, 36e3 * step.rate)
    ratio = step.interval()[1] / step.rate
    assert (cost.hours, cost.dollars) == pytest.approx((10.0, 80.0))
    assert (*cost.hours_80, *cost.dollars_80) == pytest.approx((10 / ratio, 10 * ratio, 80 / ratio, 80 * ratio))
