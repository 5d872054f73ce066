"""One GPU from its data sheet and from others: what is known moves what is not, and what is held out is not seen."""

import pytest

from collectives.errors import InputError
from simcomm.scaling import Job, find_model, one_gpu_rate
from simcomm.scaling.accuracy.one_gpu_judging import judge_one_gpu
from simcomm.scaling.descriptions import read_series
from simcomm.scaling.one_gpu import Alone, guess_rates, published

JOB = Job(find_model("ResNet-50"), 256.0)


def test_what_was_measured_on_this_gpu_is_what_it_does() -> None:
    found = one_gpu_rate(JOB, "V100", {"V100": 812.0})
    assert found.rate == 812.0 and found.interval(0.9)[0] > 750


def test_a_job_that_is_twice_as_slow_elsewhere_is_so_here() -> None:
    """Halving all known rates halves the guess, but for what published rates of the model pull."""
    known = {"A100-80": 1582.0, "H100 SXM": 2785.0, "RTX 4090": 1301.0, "V100": 833.0, "RTX 3090": 905.0}
    once = one_gpu_rate(JOB, "H100 PCIe", known)
    half = one_gpu_rate(JOB, "H100 PCIe", {name: rate / 2 for name, rate in known.items()})
    assert half.rate / once.rate == pytest.approx(0.5, abs=0.06)
    assert once.rate == pytest.approx(1866, rel=0.15)  # as published (Lambda, fp16)
    assert once.spread < one_gpu_rate(JOB, "H100 PCIe").spread


def test_more_flops_at_the_same_bytes_make_it_slower() -> None:
    rates = [
        one_gpu_rate(Job(find_model(name), 64.0), "A100").rate for name in ("ResNet-50", "ResNet-101", "ResNet-152")
    ]
    assert rates == sorted(rates, reverse=True)


def test_the_order_of_what_is_known_does_not_matter() -> None:
    asked = [Alone(JOB, published()[0].gpu, "unknown")]
    one, other = (guess_rates(rows, asked)[0] for rows in (published(), published()[::-1]))
    assert one.rate == pytest.approx(other.rate, rel=1e-6)


def test_a_type_that_is_judged_was_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever V100s are published to do, what is judged from is on other types."""
    seen = list[set[str]]()

    def spy(rows: list[Alone], asked: list[Alone]) -> object:
        seen.append({one.gpu.name for one in rows} & {one.gpu.name for one in asked})
        return guess_rates(rows, asked)

    monkeypatch.setattr("simcomm.scaling.accuracy.one_gpu_judging.guess_rates", spy)
    scores = judge_one_gpu(read_series())
    assert not set().union(*seen) and len(seen) > 12
    assert scores["data_sheet"].n == 242
    assert scores["same_job"].median is not None and scores["data_sheet"].median is not None
    assert scores["same_job"].median < scores["data_sheet"].median


@pytest.mark.parametrize("known", [{"V100": 0.0}, {"V100": float("nan")}, {"V1000": 1.0}])
def test_what_no_gpu_does_is_refused(known: dict[str, float]) -> None:
    with pytest.raises(InputError, match="V100"):
        one_gpu_rate(JOB, "A100", known)
