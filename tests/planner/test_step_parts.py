"""Test the parts of a step, the time of pipelines, and groups of devices on hosts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collectives.records.model_profile import find_model_profile
from planner.beliefs import PRIORS
from planner.columns import Columns, make_columns
from planner.hosts import GRID, Group, Host, host_of_preset
from planner.pipeline import pipeline_seconds
from planner.step import PARTS, step_parts, step_seconds

PARAMETERS = {name: prior.value for name, prior in PRIORS.items()}
RESNET = find_model_profile("resnet50")
LLAMA = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336, "mlp_matrices": 3,
    "vocab": 128256, "seq": 8192,
}  # fmt: skip
HOST = host_of_preset("dgx-h100")


def language(rows: int = 1, **more: Any) -> Columns:
    return make_columns({**LLAMA, "host": HOST, **more}, rows)


def profiled(rows: int = 1, **more: Any) -> Columns:
    return make_columns({"profile": RESNET, "alone": 1 / 2500, "micro_batch": 64, "host": HOST, **more}, rows)


@pytest.mark.parametrize("make", [language, profiled])
@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero2", "zero3", "hsdp"])
def test_parts_of_a_step_add_up_to_its_total_time(make: Callable[..., Columns], sharding: str) -> None:
    parts = step_parts(make(4, dp=[1, 2, 8, 64], sharding=sharding), PARAMETERS)
    assert sum(parts[name] for name in PARTS) == pytest.approx(parts["total"])
    assert min(parts[name].min() for name in PARTS) > -1e-12


@pytest.mark.parametrize("make", [language, profiled])
def test_one_device_has_no_communication_time(make: Callable[..., Columns]) -> None:
    parts = step_parts(make(), PARAMETERS)
    several = ("tensor", "pipeline", "sync", "copies", "processes", "stragglers")
    assert [float(parts[name][0]) for name in several] == pytest.approx([0.0] * len(several), abs=1e-12)


def test_one_device_step_time_follows_from_the_profiled_rate() -> None:
    assert step_seconds(profiled(micro_batch=50), PARAMETERS) == pytest.approx(50 / 2500)


@pytest.mark.parametrize("make", [language, profiled])
def test_slower_nic_makes_ddp_slower(make: Callable[..., Columns]) -> None:
    slow = host_of_preset("dgx-h100", nic=10e9)
    fast, slower = (step_seconds(make(dp=16, host=host), PARAMETERS) for host in (HOST, slow))
    assert slower > fast


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_pipeline_of_equal_stages_matches_the_closed_form(schedule: str, chunks: int) -> None:
    forward = np.full((1, 4 * chunks), 1.0 / chunks)
    seconds = pipeline_seconds(schedule, forward, 2 * forward, np.zeros((1, 4 * chunks - 1)), 4, 8)
    assert seconds == pytest.approx(3.0 * (8 + 3 / chunks))


def test_pipelines_have_equal_times_in_a_batch_and_alone() -> None:
    rng = np.random.default_rng(5)
    ahead, back, send = rng.random((3, 4)), rng.random((3, 4)), rng.random((3, 3)) / 10
    together = pipeline_seconds("1f1b", ahead, back, send, 4, 6)
    rows = [slice(row, row + 1) for row in range(3)]
    alone = [pipeline_seconds("1f1b", ahead[row], back[row], send[row], 4, 6)[0] for row in rows]
    assert together.tolist() == alone


def test_pipeline_of_a_profiled_model_speeds_up_sublinearly() -> None:
    single = step_parts(profiled(pp=1, count=8, micro_batch=8), PARAMETERS)["total"]
    parts = step_parts(profiled(pp=4, count=8, micro_batch=8), PARAMETERS)
    assert single / 4 < parts["compute"] + parts["pipeline"] < single


def test_groups_across_hosts_share_the_nics_of_a_host() -> None:
    host = host_of_preset("p4d.24xlarge")
    seconds = np.exp(np.interp(np.log2(1e8), GRID, np.log(host.seconds("all_reduce", Group(4, stride=8)))))
    assert 1.5 * 1e8 / (host.nic / 8) < seconds < 4 * 1e8 / (host.nic / 8)


def test_nvlink_domain_of_several_boards_is_one_host() -> None:
    rack = host_of_preset("gb200-nvl72")
    inside, across = (rack.seconds("all_reduce", Group(size))[-4] for size in (72, 144))
    assert (rack.gpus, across > inside) == (72, True)


def test_unpublished_gpu_count_uses_a_published_bus_bandwidth() -> None:
    host = Host("mine", None, 8, "pcie", 96, 1e10, busbw=((2, 10e9), (8, 5e9)))
    assert [host.bus_bandwidth(count) for count in (1, 2, 4, 8)] == [10e9, 10e9, 10e9, 5e9]


def test_host_without_a_gpu_model_adds_no_copy_or_straggler_time() -> None:
    unknown = Host("wires", None, 1, "", 1, 0.0, network=lambda collective, nbytes, group: nbytes / 1e9)
    parts = step_parts(profiled(host=unknown, dp=4, precision="float32"), PARAMETERS)
    assert [float(parts[name][0]) for name in ("copies", "processes", "stragglers")] == [0, 0, 0]
    assert parts["sync"] > 0.08  # 102 MB take 102 ms, of which backward hides 17 ms at most


def test_parameter_server_takes_longer_than_overlapped_sync() -> None:
    host = Host("pcie", "V100 SXM2 16GB", 4, "pcie", 48, 1e10, busbw=((2, 8e9),))
    columns = profiled(3, host=host, dp=4, exchange=["server", "overlapped", "none"], precision="float32")
    served, overlapped, none = step_parts(columns, PARAMETERS)["sync"]
    assert served > overlapped > none == 0
