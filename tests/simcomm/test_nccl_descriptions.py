"""System descriptions and published tables: defaults, errors, and no value stated twice."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.tables import COLUMNS, read_table, read_tables, space_evenly
from collectives import InputError
from collectives.costs.bounds import bus_factor
from simcomm.cluster.hardware import machine_entries
from simcomm.nccl.catalogue import catalogue_keys, described_gpus
from simcomm.nccl.descriptions import (
    FILE_NAME,
    OWN_DATA,
    describe_preset,
    describe_system,
    own_machines,
    put_aside,
    read_systems,
)
from simcomm.nccl.measured.tables import MeasuredRow, SizeSeries

SYSTEMS = read_systems()


def write(folder: Path, text: str) -> Path:
    (folder / FILE_NAME).write_text(text)
    return folder


def test_every_system_has_a_table_and_a_source():
    with (OWN_DATA / "systems.csv").open(newline="") as file:
        sources = {row["slug"]: row["source"] for row in csv.DictReader(file)}
    tables = {path.stem for path in OWN_DATA.glob("*.csv")} - {"systems"}
    assert SYSTEMS.keys() == tables == sources.keys()
    assert all(source.startswith(("https://", "a file on GitHub")) for source in sources.values())
    assert put_aside() < SYSTEMS.keys()
    assert not {slug for slug in put_aside() if SYSTEMS[slug].skip}


def test_published_bandwidths_agree_with_their_times():
    for slug, table in read_tables(SYSTEMS).items():
        for row in table.rows:
            if row.seconds and row.algbw and row.busbw:
                rounding = 0.006 / row.algbw + 0.006 / row.busbw + 0.05e-6 / row.seconds + 0.004
                assert row.nbytes / row.seconds / 1e9 == pytest.approx(row.algbw, rel=rounding), (slug, row)
                factor = bus_factor(row.collective, SYSTEMS[slug].ranks)
                assert row.busbw / row.algbw == pytest.approx(factor, rel=rounding), (slug, row)


def test_machine_entries_do_not_repeat_keys_of_the_catalog():
    for name, keys in own_machines().items():
        if "preset" in keys:
            assert keys.keys() <= {"preset", "net", "gdr", "cpu", "p2p_refused"}, name
            assert not {*keys} & {*catalogue_keys(name, keys["preset"])}, name
    presets = [keys["preset"] for keys in own_machines().values() if "preset" in keys]
    assert len(presets) == len({*presets})
    assert {*presets} == {name for name, entry in machine_entries().items() if entry.get("nics")}
    others = [keys for keys in own_machines().values() if "preset" not in keys]
    assert all("gpu" not in keys or keys["gpu"] == "CPU" for keys in others), "boxes of a source, without a name"


def test_catalog_machines_match_vendor_data():
    p4d = SYSTEMS["a100_40g_2x8_p4d_efa_eks"]
    assert (p4d.gpu.name, p4d.link, p4d.nic, p4d.pcie) == ("A100 SXM", "nvswitch", 50, 3)
    assert (p4d.net, p4d.gdr) == ("efa1", True)
    assert (p4d.preset, p4d.procs, p4d.version, p4d.domain) == ("p4d.24xlarge", "per_gpu", (2, 9), 8)
    rack = SYSTEMS["gb200_18x4_coreweave_nvl72"]
    assert (rack.gpus, rack.domain, rack.nic, rack.nvlink) == (4, 72, 200, 900)
    assert describe_preset("p4d.24xlarge", 2, 8).nic == p4d.nic
    assert describe_preset("rtx4090-pcie", 1, 8).layout == "switches"
    slingshot = SYSTEMS["h100nvl_2x2_slingshot200_new"]
    assert slingshot.version == (2, 30), "2.30 is not 2.3"


@pytest.mark.parametrize("preset", machine_entries())
def test_every_catalog_machine_can_be_described(preset: str):
    assert describe_preset(preset, 1, 2).gpu.generation


def test_system_defaults_depend_on_the_gpu_and_are_listed():
    system = describe_system("one", {"nodes": 1, "gpus": 8, "gpu": "RTX 3090"})
    assert (system.link, system.p2p, system.procs, system.gdr) == ("pcie", False, "single", False)
    assert {"link", "layout", "p2p", "nccl"} <= system.defaulted
    assert system.stated == {"nodes", "gpus", "gpu"}
    assert system.guessed == ("nccl",)
    links = {name: describe_system("x", {"nodes": 1, "gpus": 8, "gpu": name}).link for name in described_gpus()}
    assert {name for name, link in links.items() if link == "mesh"} >= {"P100 SXM2", "V100 SXM2"}
    assert {name for name, link in links.items() if link == "nvswitch"} >= {"A100 SXM", "H20", "B200", "GH200"}
    assert (links["T4"], links["H100 PCIe"], links["GB10"], links["MI300X"], links["CPU"]) == (
        "pcie", "pcie", "pcie", "xgmi", "cpu",
    )  # fmt: skip
    assert describe_system("k", {"nodes": 1, "gpus": 4, "gpu": "K80"}).layout == "switches"
    switched = describe_system("s", {"nodes": 1, "gpus": 2, "gpu": "V100 PCIe", "layout": "switch"})
    assert switched.p2p


@pytest.mark.parametrize(
    ("gpu", "gpus", "keys", "layout"),
    [
        ("RTX 4090", 2, {}, "switch"), ("RTX 4090", 4, {}, "socket"), ("RTX 4090", 8, {}, "switches"),
        ("RTX 4090", 2, {"p2p": True}, "socket"), ("RTX 4090", 2, {"host": "desktop"}, "socket"),
        ("RTX 4090", 8, {"lanes": 8}, "two"), ("A40", 2, {}, "socket"), ("A40", 8, {}, "two"),
    ],
)  # fmt: skip
def test_default_layout_follows_from_gpu_and_count(gpu: str, gpus: int, keys: dict[str, object], layout: str):
    assert describe_system("x", {"nodes": 1, "gpus": gpus, "gpu": gpu, **keys}).layout == layout


def test_description_file_can_use_shipped_and_own_machines(tmp_path: Path):
    write(
        tmp_path,
        """
[machines]
mine = { gpu = "Z100", generation = "hopper", nvlink = 100, pcie = 5, net = "ib", nic = 12.5 }
[systems]
a = { machine = "aws_p5", nodes = 2, gpus = 8 }
b = { machine = "mine", nodes = 2, gpus = 4, nccl = 2.20 }
""",
    )
    systems = read_systems(tmp_path)
    assert systems["a"].nic == 400
    assert (systems["b"].gpu.name, systems["b"].nvlink, systems["b"].version) == ("Z100", 100, (2, 20))


REFUSED = {
    'a = { nodes = 1, gpus = 8, gpu = "A100 SXM", speed = 4 }': "system a: unknown key 'speed'; use machine",
    "a = { nodes = 1, gpus = 8 }": "system a: gpu is missing",
    'a = { nodes = 2, gpus = 8, gpu = "T4", net = "ib" }': "system a: nic is required for more than one node",
    'a = { nodes = 2, gpus = 8, gpu = "T4", nic = 5 }': "system a: net is required for more than one node",
    'a = { nodes = true, gpus = 8, gpu = "T4" }': "system a: nodes = True must be an integer",
    'a = { nodes = 1, gpus = 8, gpu = "A100 SMX" }': "did you mean A100 SXM",
    'a = { nodes = 1, gpus = 8, gpu = "Z100" }': "for another GPU also set generation, nvlink, pcie",
    'a = { nodes = 1, gpus = 8, machine = "aws_p6" }': "unknown machine 'aws_p6'; did you mean",
    'a = { nodes = 1, gpus = 8, gpu = "T4", link = "wire" }': "system a: link = 'wire' should be 'nvswitch', ",
    'a = { nodes = 1, gpus = 8, gpu = "T4", preset = "dgx-h100" }': "preset is a key of [machines]",
    "": "describes no system",
    'b = 1\n[machines]\nm = { nodes = 1 }\n[systems.a]\nmachine = "m"': "[systems] must have lines",
    'a = { machine = "m", nodes = 1, gpus = 2 }\n[machines]\nm = { nodes = 1 }': "nodes is a key of [systems], not",
    'a = { machine = "m", nodes = 1, gpus = 2 }\n[machines]\nm = { preset = "dgx" }': "machine 'dgx' is not in the cat",
}


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_description_error_names_its_file_and_key(tmp_path: Path, text: str):
    with pytest.raises(InputError) as refusal:
        read_systems(write(tmp_path, f"[systems]\n{text}\n"))
    assert REFUSED[text] in str(refusal.value)
    assert str(tmp_path / FILE_NAME) in str(refusal.value)


HEAD = ",".join(COLUMNS)
BROKEN_TABLES = {
    "": "line 1: the columns must be collective, ",
    f"{HEAD}\nall_reduce,,,8,1.0": "line 2: 5 cells; there are 7 columns",
    f"{HEAD}\nall_reduce,,,8,1.0,0.01,0.01\nall-reduce,,,8,1,1,1": "line 3: collective 'all-reduce' is not one of",
    f"{HEAD}\nall_reduce,,,8,-1,1,1": "line 2: time_us must be a non-negative number or blank, not '-1'",
    f"{HEAD}\nall_reduce,,,8,0,1,1": "line 2: time_us = 0; a collective takes time",
    f"{HEAD}\nall_reduce,,,1000000,100.0,10.00,\nall_reduce,,,1000000,100.0,10.10,": "line 3: algbw_GBps = 10.10",
    "collective,bytes,time_ms\nall_reduce,8,1": "line 1: the columns must be",
}


@pytest.mark.parametrize("text", BROKEN_TABLES)
def test_error_of_an_invalid_table_names_the_line(tmp_path: Path, text: str):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InputError) as refusal:
        read_table(path)
    assert f"{path}: {BROKEN_TABLES[text]}" in str(refusal.value)


def test_nccl_table_may_have_few_columns_in_any_order(tmp_path: Path):
    path = tmp_path / "x.csv"
    path.write_text("\ufeffbytes,busbw_GBps,collective\n3000000,1.50,all_reduce\n0,0,all_reduce\n")
    table = read_table(path)
    assert (table.rows[0].collective, table.rows[0].nbytes, table.rows[0].busbw) == ("all_reduce", 3_000_000, 1.5)
    assert table.series(4)["all_reduce"].seconds == pytest.approx([3e-3])
    assert table.dropped(4) == 1


def test_nvlink_is_rejected_for_a_gpu_without_nvlink():
    with pytest.raises(InputError, match=r"link = 'nvswitch', but RTX 4090 has no NVLink; use \"pcie\", or set nvlink"):
        describe_system("x", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090", "link": "nvswitch"})
    assert describe_system("x", {"nodes": 1, "gpus": 2, "gpu": "RTX 4090", "link": "bridge", "nvlink": 50}).nvlink == 50


def test_missing_row_time_is_computed_from_precise_bandwidths():
    assert MeasuredRow("all_reduce", 1000, 2e-6, None, None).time(4) == 2e-6
    assert MeasuredRow("all_reduce", 1000, None, 0.5, None).time(4) == pytest.approx(2e-6)
    assert MeasuredRow("all_reduce", 1000, None, None, 1.5).time(4) == pytest.approx(1e-6)
    assert MeasuredRow("all_reduce", 1000, None, None, 0.29).time(4) is None
    assert MeasuredRow("all_reduce", 1000, None, None, None).time(4) is None


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=60, unique=True), st.integers(2, 12))
def test_evenly_spaced_sizes_include_both_ends(sizes: list[int], most: int):
    nbytes = np.array(sorted(sizes), dtype=float)
    chosen = space_evenly(SizeSeries("all_reduce", nbytes, nbytes * 2), most)
    assert 1 <= len(chosen.nbytes) <= min(most, len(sizes)) or len(sizes) <= most
    assert (chosen.nbytes[0], chosen.nbytes[-1]) == (nbytes[0], nbytes[-1])
    assert np.all(np.diff(chosen.nbytes) > 0) and np.all(chosen.seconds == 2 * chosen.nbytes)
