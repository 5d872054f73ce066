"""Every key of every table of a scenario file changes a prediction or is rejected."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import BaseModel
from scenario_texts import write

import ringlab
from collectives import InputError
from scenarios.cluster_sections import TOPOLOGY_SECTIONS, FileSection, HereSection, Link, LinksSection, MachineSection
from scenarios.faults import ComputeJitterSection, FaultsSection, LinkSection, MessageJitterSection, RankSection
from scenarios.fields import Section
from scenarios.nccl_sections import NcclSection, SystemSection
from scenarios.network_section import NetworkSection
from scenarios.sections import CollectiveSection, PlanSection, ScenarioSection, WhatIfSection
from scenarios.training_section import ComputeSection, TrainingSection
from simcomm.nccl.descriptions import Keys

LINKED = 'bandwidth = "10 Gbit/s"\nlatency = "5 us"\n'
STAR = f'[cluster]\ntopology = "star"\nhosts = 4\n{LINKED}'
TREE = f'[cluster]\ntopology = "two-level-tree"\nracks = 2\nhosts_per_rack = 2\noversubscription = 4\n{LINKED}'
RING = '[collective]\nname = "all_reduce"\nalgorithms = ["ring"]\nsizes = ["1 MiB"]\n'
NCCL = '[collective]\nname = "all_reduce"\nalgorithms = ["nccl"]\nsizes = ["1 KiB", "1 MiB", "64 MiB"]\n'
STEP = '[training]\ngradient_sync = "ring"\ncompute = {forward = "1 ms", backward = "2 ms", optimizer = "1 ms"}\n'
TWO = '[cluster]\nsystem = {nodes = 2, gpus = 8, gpu = "A100 SXM", net = "ib", nic = "1600 Gbit/s"}\n'
CARDS = '[cluster]\nsystem = {nodes = 1, gpus = 4, gpu = "L40S", layout = "switches"}\n'
SQUARE = f'[cluster]\ntopology = "torus"\ndimensions = [2, 2]\n{LINKED}'
LINKS = (
    "[cluster]\n"
    + "".join(f'[[cluster.link]]\nbetween = ["h{host}", "s{host // 2}"]\n{LINKED}' for host in (0, 1, 2, 3))
    + f'[[cluster.link]]\nbetween = ["s0", "s1"]\n{LINKED}'
)
FAR = RING.replace("ring", "direct")
RENT = """
[training]
model = "resnet50"
batch_size = 64
samples_per_epoch = 1_000_000
[plan]
target_samples = 1e8
most_nodes = 1
providers = ["AWS"]
known_rates = {"V100 SXM2 16GB" = 400.0}
"""
DGX = '[cluster]\npreset = "dgx-a100"\nnodes = 2\n'


class Case(NamedTuple):
    """A scenario, and a change of one key that its answer must show."""

    text: str
    change: str


def cases(text: str, place: str, **changes: str) -> dict[str, Case]:
    """Return a case for each key of the table at ``place``. Further overrides follow after ``|``."""
    return {key: Case(text, f"{place}{key}={change}") for key, change in changes.items()}


JITTER = '[faults]\nrepetitions = 5\n[faults.messages]\ndistribution = "exponential"\nmean = "50 us"\n'
SLOW = '[faults]\nrepetitions = 5\n[faults.compute]\ndistribution = "exponential"\nmean = 0.5\n'
DEGRADED = '[[faults.link]]\nbetween = ["h0", "s0"]\nshare = 0.5\nat = "100 us"\nlasting = "100 us"\n'
OTHER = '[[what_if]]\ntitle = "other"\nfaults = {link = [{between = ["h0", "s0"], share = 0.5}]}\n'
HOSTS = '[cluster]\nsystem = {nodes = 2, gpus = 8, gpu = "H100 SXM", net = "ib", nic = "3200 Gbit/s"}\n' + NCCL
CASES: dict[type[BaseModel], dict[str, Case]] = {
    ScenarioSection: cases(STAR + STEP + RING, "", cluster="{preset='dgx-a100'}", training="{}",
                        collective="{name='broadcast', algorithms=['chain'], sizes=['1 MiB']}",
                        faults="{rank=[{rank=0, slowdown=3}]}", what_if="[{title='x', cluster={topology='ring', "
                        "hosts=4, bandwidth='1 Gbit/s', latency='5 us'}}]")
    | cases(TWO + NCCL, "", nccl="{NCCL_PROTO='LL'}"),
    CollectiveSection: cases(TREE + RING.replace("all_reduce", "broadcast").replace("ring", "chain"), "collective.",
                          name="all_reduce", root="1", algorithms="['naive']", sizes="['2 MiB']"),
    FaultsSection: cases(STAR + RING + JITTER, "faults.", seed="1", repetitions="3",
                      messages="{distribution='uniform', mean='5 us'}", link="[{between=['h0', 's0'], share=0.1}]")
    | cases(STAR + STEP, "faults.", rank="[{rank=0, slowdown=3}]", compute="{distribution='uniform', mean=0.5}"),
    RankSection: cases(STAR + STEP + "[[faults.rank]]\nrank = 0\nslowdown = 2\n", "faults.rank.0.", slowdown="3",
                    fails_at="'1 ms'") | cases(STAR + RING + "[[faults.rank]]\nrank = 0\nfails_at = '1 us'\n",
                                               "faults.rank.0.", rank="1"),
    LinkSection: cases(STAR + RING + DEGRADED, "faults.link.0.", share="0.1", at="'1 s'", lasting="'500 us'",
                    between="['h1', 's0']"),
    MessageJitterSection: cases(STAR + RING + JITTER, "faults.messages.", distribution="uniform", mean="'70 us'"),
    ComputeJitterSection: cases(STAR + STEP + SLOW, "faults.compute.", distribution="uniform", mean="0.7"),
    WhatIfSection: cases(STAR + RING + OTHER, "what_if.0.", title="'another'", faults="{}",
                      cluster="{topology='star', hosts=4, bandwidth='1 Gbit/s', latency='5 us'}")
    | cases(TWO + NCCL + '[[what_if]]\ntitle = "other"\nnccl = {NCCL_PROTO = "LL"}\n', "what_if.0.",
            nccl="{NCCL_PROTO='Simple'}"),
    NetworkSection: cases(TREE + RING, "cluster.", world_size="3", placement="round-robin", transport="nccl")
    | cases(SQUARE.replace("2, 2", "4, 4") + FAR, "cluster.", routing="{name='ecmp', seed=3}"),
    LinksSection: cases(LINKS + RING, "cluster.",
                        link="[{between=['h0', 'h1'], bandwidth='1 Gbit/s', latency='5 us'}]"),
    Link: cases(LINKS + FAR, "cluster.link.0.", between="['h0', 's1']", bandwidth="'1 Gbit/s'", latency="'5 ms'"),
    SystemSection: cases(TWO + NCCL, "cluster.", system="h100_2x8_aws_p5_efa", nodes="3", gpus_per_node="4",
                      transport="ideal", world_size="4", placement="round-robin", routing="ecmp"),
    MachineSection: cases(DGX + RING, "cluster.", preset="dgx-h100", nodes="3", gpus_per_node="4",
                       bandwidth="'10 Gbit/s'", latency="'1 ms'", description="{nic='10 Gbit/s'}", world_size="3")
    | cases(DGX.replace("2", "4") + "nodes_per_leaf = 2\noversubscription = 2\n" + FAR, "cluster.",
            nodes_per_leaf="1", oversubscription="64"),
    FileSection: {},
    HereSection: {},
    NcclSection: cases(HOSTS, "nccl.", version="'2.9'", NCCL_ALGO="Tree", NCCL_PROTO="LL", NCCL_MAX_NCHANNELS="1",
                    NCCL_MAX_CTAS="1", NCCL_P2P_LEVEL="LOC", NCCL_P2P_DISABLE="1", NCCL_NET_GDR_LEVEL="LOC",
                    NCCL_NVLS_ENABLE="0", NCCL_BUFFSIZE="65536", NCCL_NTHREADS="64")
    | cases(TWO + NCCL, "nccl.", NCCL_COLLNET_ENABLE="1")
    | cases(CARDS + NCCL, "nccl.", NCCL_MIN_NCHANNELS="16", NCCL_MIN_CTAS="16", NCCL_SHM_DISABLE="1"),
    PlanSection: cases(RENT, "plan.", target_samples="2e8", budget="1.0", deadline="'1 h'", most_nodes="2",
                    providers="['Lambda']", known_rates="{'V100 SXM2 16GB' = 300.0}")
    | cases(RENT.replace("AWS", "Verda"), "plan.", spot="true")
    | cases(RENT.replace("target_samples = 1e8\n", ""), "plan.", target_tokens="1e9"),
    Keys: cases(TWO + NCCL, "cluster.system.", preset="dgx-h100", nodes="3", gpus="2", gpu="T4",
                generation="volta", link="pcie", nvlink="'50 GB/s'", domain="16", net="efa1", nic="'200 Gbit/s'",
                nic_guess="true", gdr="false", sharp="true", procs="single", harness="torch", nccl="'2.9'",
                algo="tree", proto="ll", cluster="x", degraded="true", skip="true", host="desktop")
    | cases('[cluster]\nsystem = {machine = "aws_p4d", nodes = 2, gpus = 8}\n' + NCCL, "cluster.system.",
            machine="aws_p5")
    | cases(CARDS + NCCL, "cluster.system.", pcie="3", lanes="4", layout="two", cpu="amd", p2p="false",
            p2p_refused="true", p2p_level="SYS"),
}  # fmt: skip


GRID = {"hosts": "3", "racks": "3", "hosts_per_rack": "3", "ports": "6", "oversubscription": "1.0",
        "dimensions": "[2, 3]", "bandwidth": "'1 Gbit/s'", "latency": "'1 ms'"}  # fmt: skip
SMALL = {"hosts": "5", "racks": "2", "hosts_per_rack": "2", "ports": "4", "oversubscription": "4.0",
         "dimensions": "[2, 2]", "bandwidth": "'10 Gbit/s'", "latency": "'5 us'"}  # fmt: skip
for name, section in TOPOLOGY_SECTIONS.items():
    keys = [key for key in section.model_fields if key in GRID]
    text = f'[cluster]\ntopology = "{name}"\n' + "".join(f"{key} = {SMALL[key]}\n" for key in keys if key in SMALL)
    CASES[section] = {key: Case(text + FAR, f"cluster.{key}={GRID[key]}") for key in keys} | {
        "topology": Case(text + FAR, "cluster={topology='star', hosts=3, bandwidth='1 Gbit/s', latency='1 ms'}")
    }


# Keys whose effect no prediction shows: they change data, or require a calibration of this machine.
ELSEWHERE: dict[type[BaseModel], tuple[str, ...]] = {
    CollectiveSection: ("dtype", "op"),
    FileSection: ("topology",),
    PlanSection: ("profiles",),
    ScenarioSection: ("title", "plan"),
    HereSection: ("preset", "world_size", "transport"),
}
LEFT_OUT = {TrainingSection, ComputeSection}  # tested in other files
TABLES = {
    **CASES,
    **{
        section: CASES[NetworkSection] | CASES.get(section, {})
        for section in CASES
        if issubclass(section, NetworkSection)
    },
}


UNCHANGED: dict[str, list[object]] = {}  # figures by scenario


def predict(text: str, folder: Path, *overrides: str) -> list[object]:
    if "[plan]" in text:
        plan = ringlab.plan(write(folder, text), *overrides)
        return [plan.candidates, plan.beyond_limits]
    answer = ringlab.load(write(folder, text), *overrides).predict()
    what_ifs = [(what_if.title, what_if.collectives, what_if.training) for what_if in answer.what_ifs]
    return [answer.collectives, answer.training, what_ifs]


def tables(section: type[BaseModel] = Section) -> Iterator[type[BaseModel]]:
    """Yield the tables of a scenario file that have keys of their own."""
    for table in section.__subclasses__():
        yield from tables(table)
        if {*table.model_fields} - {*section.model_fields}:
            yield table


def test_every_key_of_every_scenario_table_has_a_test_case() -> None:
    shipped = {section for section in tables() if section.__module__.startswith("scenarios.")}
    assert shipped - {*TABLES} == LEFT_OUT
    for section, keys in TABLES.items():
        assert {*section.model_fields} == {*keys, *ELSEWHERE.get(section, ())}, section


PAIRS = [(section, key) for section, keys in CASES.items() for key in keys]


@pytest.mark.parametrize(
    ("section", "key"),
    [pytest.param(*pair, marks=[pytest.mark.slow] * (number % 8 > 0)) for number, pair in enumerate(PAIRS)],
)
def test_key_changes_the_prediction_or_is_rejected(tmp_path: Path, section: type[BaseModel], key: str) -> None:
    text, change = CASES[section][key]
    if text not in UNCHANGED:
        UNCHANGED[text] = predict(text, tmp_path)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        try:
            assert predict(text, tmp_path, change) != UNCHANGED[text]
        except InputError as error:
            line = str(error)
            assert key in (line.partition("--set")[2].partition(": ")[2] or line), error
