"""Rented machines: the price file and its refusals, uncertainty, the Pareto front, break-even points, the plan."""

from dataclasses import replace
from datetime import date
from itertools import product
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist

import pytest

from collectives.errors import InputError
from simcomm.cluster.hardware import parts
from simcomm.mesh.compute import MEASURED_SPREAD
from simcomm.mesh.intervals import Uncertain, chance_less
from simcomm.renting.plan import Measurement, PlanLimits, RentalPlan, make_plan, pareto_front, spread_after, worth
from simcomm.renting.quotes import (
    PAYS_OFF,
    Choice,
    Interruptions,
    Quote,
    Rate,
    interruptions,
    list_choices,
    make_quote,
    price_of_other,
    second_node,
)
from simcomm.renting.rentals import COLUMNS, Rental, read_rentals

PHI = NormalDist().cdf
ROW = {
    "InstanceType": "box", "vCPUs": "8", "MemoryGiB": "64", "AcceleratorName": "A100", "AcceleratorCount": "4",
    "GpuInfo": "", "Price": "4.0", "SpotPrice": "1.5", "Region": "here", "Provider": "Us", "Gpu": "A100 40GB SXM",
    "Machine": "", "Interconnect": "NVSwitch", "P2P": "", "NicGbps": "80", "Date": "2026-01-31",
    "Source": "us",
}  # fmt: skip


def price_file(folder: Path, drop: tuple[str, ...] = (), **changes: str) -> Path:
    """A price file of one row."""
    columns = [name for name in COLUMNS if name not in drop]
    path = folder / "mine.csv"
    path.write_text(f"{','.join(columns)}\n{','.join({**ROW, **changes}[name] for name in columns)}\n")
    return path


def rental(price: float = 4.0, gpu: str = "A100 40GB SXM", gpus: int = 4, **changes: object) -> Rental:
    """A machine to rent."""
    usual = Rental("box", "Us", "here", gpu, gpus, 8.0, price, None, "NVSwitch", True, 1, 1e10, date(2026, 1, 1), "us")
    return replace(usual, **changes)  # type: ignore[arg-type]


def quote(cost: float, hours: float, causes: dict[str, float], machine: Rental | None = None) -> Quote:
    """A quote of so many dollars and hours, for as many samples as come out."""
    chosen = Choice(replace(machine or rental(), price=cost / hours), 1, "on demand")
    return make_quote(chosen, Rate(Uncertain(1.0, causes), "compute", 1.0), hours * 3600, Interruptions())


def flat(choice: Choice) -> Rate:
    """Two nodes exchange for as long as they compute at 1 GB/s."""
    bandwidth = choice.rental.nic_bandwidth or 0.0
    efficiency = 1.0 if choice.nodes == 1 else bandwidth / (bandwidth + 1e9)
    return Rate(Uncertain(100.0 * choice.nodes * efficiency), "network", efficiency)


def test_a_price_file_is_read_in_its_units(tmp_path: Path) -> None:
    (found,) = read_rentals(price_file(tmp_path))
    assert (found.name, found.gpus, found.price, found.spot_price) == ("Us box", 4, 4.0, 1.5)
    assert (found.nic_bandwidth, found.dated) == (1e10, date(2026, 1, 31))
    (known,) = read_rentals(
        price_file(
            tmp_path, Machine="p4d.24xlarge", AcceleratorCount="8", Interconnect="", NicGbps="",
            SpotPrice="0.00",
        )
    )  # fmt: skip
    assert (known.interconnect, known.nic_bandwidth) == ("NVSwitch", 5e10)
    assert known.spot_price is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Price": "cheap"}, "line 2: Price = 'cheap'; give a number above 0"),
        ({"Price": "", "SpotPrice": "0"}, "line 2: neither Price nor SpotPrice"),
        ({"AcceleratorCount": "1.5"}, "line 2: AcceleratorCount = '1.5'; give a whole number"),
        ({"Gpu": "A100"}, "line 2: Gpu = 'A100' is not in the hardware catalogue; did you mean"),
        ({"Machine": "dgx-h100"}, "line 2: Machine dgx-h100 has 8 x H100 SXM, and the line 4 x A100 40GB SXM"),
        ({"Machine": "p4d.24xlarge", "AcceleratorCount": "8"}, "line 2: Interconnect = 'NVSwitch', and the hardware"),
        ({"Interconnect": ""}, "line 2: Interconnect is empty for 4 GPUs; give one of NVSwitch"),
        ({"P2P": "maybe"}, "line 2: P2P = 'maybe'; give yes or no"),
        ({"Date": "2026"}, "line 2: Date = '2026'; give a day as"),
        ({"Source": ""}, "line 2: Source is empty"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_rentals(price_file(tmp_path, **changes))
    assert said in str(refused.value)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine\.csv, line 1: the columns SpotPrice, Provider are missing"):
        read_rentals(price_file(tmp_path, drop=("Provider", "SpotPrice")))


def test_every_price_that_is_shipped_has_its_source() -> None:
    found = read_rentals()
    assert all(one.source.startswith("https://") for one in found)
    assert len({(one.key, one.spot_price) for one in found}) == len(found)
    assert all(one.gpu in parts("GPU") for one in found)


def test_the_front_is_what_nothing_beats() -> None:
    points = [(float(7 * k % 11), float(k * k % 13)) for k in range(40)]
    beaten = {
        j for i, j in product(range(40), repeat=2)
        if points[i] != points[j] and all(a <= b for a, b in zip(points[i], points[j], strict=True))
    }  # fmt: skip
    assert {points[place] for place in pareto_front(points)} == {points[j] for j in range(40) if j not in beaten}
    assert pareto_front([(1.0, 1.0)] * 3) == [0]


def test_the_chance_of_two_lognormals() -> None:
    a, b = Uncertain(2.0, {"one": 0.3, "shared": 0.4}), Uncertain(3.0, {"two": 0.2, "shared": 0.1})
    expected = PHI(log(1.5) / sqrt(0.3**2 + 0.2**2 + 0.3**2))
    assert chance_less(a, b) == pytest.approx(expected, rel=1e-12)
    assert chance_less(b, a) == pytest.approx(1 - expected, rel=1e-12)
    low, high = a.interval(0.8)
    assert a.chance_below(high) - a.chance_below(low) == pytest.approx(0.8, rel=1e-12)
    assert a.inverse().times(4.0).median == 2.0


def test_what_a_measurement_saves() -> None:
    """The expected least of a sure cost and a lognormal one that is measured: the formula of Black and Scholes."""
    sure, unsure = quote(10.0, 1.0, {}), quote(9.0, 1.0, {"one": 0.5})
    found = worth([unsure, sure], Measurement("it", 0.1, ({"one": 0.5},)), unsure, sure)
    moved = 0.25 / sqrt(0.25 + MEASURED_SPREAD**2)
    mean = 9.0 * exp(0.25 / 2)
    d = (log(10.0 / mean) + moved**2 / 2) / moved
    least = mean * PHI(d - moved) + 10.0 * (1 - PHI(d))
    assert mean > 10.0
    assert found.saves == pytest.approx(10.0 - least, rel=1e-4)
    assert found.before == 0.5
    assert found.after == pytest.approx(sqrt(0.25 - moved**2))
    assert spread_after(sure.cost.over(unsure.cost), [{"another": 0.4}]) == 0.5


def test_what_two_share_is_learnt_from_both() -> None:
    """One of two types, measured, says little of the other where a job's constant is as unsure; both say all."""
    shared = {"the job": 1.0}
    a, b = quote(9.0, 1.0, {**shared, "one A": 0.2}), quote(10.0, 1.0, {**shared, "one B": 0.2})
    runs = a.rate.rate.causes, b.rate.rate.causes
    one, both = (worth([a, b], Measurement("", 0.0, which), a, b) for which in (runs[:1], runs))
    assert one.before == pytest.approx(sqrt(0.08))
    assert one.after == pytest.approx(sqrt(0.08 - 0.04**2 / (1.04 + MEASURED_SPREAD**2)))
    assert both.after == pytest.approx(sqrt(2) * MEASURED_SPREAD, rel=0.05)
    assert both.saves > 2 * one.saves > 0
    again = worth([a, b], Measurement("", 0.0, (runs[0], {})), a, b)
    assert again.saves == pytest.approx(one.saves, rel=0.05)


def test_break_even_points() -> None:
    one = rental(nic_bandwidth=2e9, spot_price=1.0)
    single = make_quote(Choice(one, 1, "on demand"), flat(Choice(one, 1, "on demand")), 3600.0, Interruptions())
    sooner, pays = second_node(single, flat)
    assert sooner.value == pytest.approx(1e9, rel=1e-6)
    assert pays.value == pytest.approx(1e9 * PAYS_OFF / (1 - PAYS_OFF), rel=1e-6)
    assert "8 Gbit/s" in sooner.text
    assert sooner.now == 2e9
    other = quote(8.0, 2.0, {})
    assert price_of_other(quote(6.0, 1.0, {}), other).value == pytest.approx(3.0)
    spot = make_quote(Choice(one, 1, "spot"), flat(Choice(one, 1, "spot")), 3600.0, Interruptions())
    found = interruptions(single, spot, Interruptions(lost_hours=0.5))
    assert found is not None
    often = Interruptions(found.value, 0.5)
    again = make_quote(spot.choice, spot.rate, 3600.0, often)
    assert again.cost.median == pytest.approx(single.cost.median)


def plan_of(*quotes: Quote, limits: PlanLimits = PlanLimits()) -> RentalPlan:  # noqa: B008 - it is frozen
    return make_plan(quotes, limits, flat, Interruptions())


def test_the_plan_is_ranked_by_cost() -> None:
    dear, cheap, slow = quote(9.0, 1.0, {}), quote(5.0, 2.0, {"a": 0.1}), quote(5.5, 3.0, {"b": 0.2})
    plan = plan_of(dear, slow, cheap)
    assert plan.quotes == (cheap, slow, dear)
    assert plan.front == (dear, cheap)
    assert plan.chance_first == pytest.approx(PHI(log(1.1) / sqrt(0.05)))
    assert plan.rival == slow
    assert plan_of(dear, slow, cheap, limits=PlanLimits(deadline=1.5)).quotes == (dear,)


def test_what_both_share_makes_no_choice_unsure() -> None:
    plan = plan_of(quote(5.0, 1.0, {"one A100": 0.4}), quote(5.1, 1.0, {"one A100": 0.4}))
    assert plan.chance_first == 1.0
    assert plan.measure is None


def test_the_nearest_is_said_where_nothing_is_within_the_limits() -> None:
    quotes = quote(9.0, 1.0, {}), quote(5.0, 2.0, {})
    with pytest.raises(InputError) as refused:
        plan_of(*quotes, limits=PlanLimits(deadline=0.5, budget=4.0))
    assert str(refused.value) == (
        "nothing is done within 30 min and for $4: the soonest is Us box at $9.00 in 1 h; "
        "the cheapest is Us box at $5.00 in 2 h"
    )
    with pytest.raises(InputError, match=r"in that time the cheapest is Us box at \$9.00 in 1 h; for that the soonest"):
        plan_of(*quotes, limits=PlanLimits(deadline=1.0, budget=6.0))


def test_a_second_node_needs_a_network_that_is_known() -> None:
    found = [*list_choices([rental(nic_bandwidth=None), rental(spot_price=1.0)], most_nodes=2, spot=True)]
    assert [(choice.nodes, choice.market) for choice in found] == [
        (1, "on demand"), (1, "on demand"), (1, "spot"), (2, "on demand"), (2, "spot"),
    ]  # fmt: skip
    assert found[-1].price == 2.0
