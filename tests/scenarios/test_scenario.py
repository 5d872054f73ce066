"""Check valid scenario files: shipped scenarios, trainings, TCP terms and overrides."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenario_texts import ASKS, HERE, LINKS, STAR, TRAINS, write

from collectives import InputError
from collectives.records.calibration import Calibration, FittedLine
from collectives.training.workload import ComputePhases, Training
from scenarios import load, shipped
from simcomm.cluster.cluster import IDEAL


def test_shipped_scenario_begins_with_a_question() -> None:
    syncs = {"quickstart": ["naive", "ring", "ddp"], "star8": ["naive", "ring"], "two-racks": []}
    for name, expected in syncs.items():
        scenario = load(name)
        assert scenario.path == shipped()[name] and scenario.collective is not None
        assert [training.sync_name for training in scenario.trainings] == expected
        question = scenario.path.read_text().splitlines()[0]
        assert question.startswith("# ") and "?" in question


def test_link_between_two_nodes_has_both_directions(tmp_path: Path) -> None:
    cluster = load(write(tmp_path, LINKS + ASKS)).cluster
    assert cluster.hosts == ("h0", "h1")
    assert cluster.transport == IDEAL
    for a, b in (("h0", "s0"), ("s0", "h0")):
        assert cluster.graph.edges[a, b] == {"bandwidth": 25e6, "latency": 50e-6}
    assert cluster.graph.edges["h1", "s0"] == {"bandwidth": 125e6, "latency": 0.0}


BROADCAST = ["collective.name=broadcast", "collective.algorithms=naive", "collective.root=3"]
SIZES = "collective.sizes=['1003 B', '8 B']"
TITLED = 'title = "A question"' + STAR + ASKS
READ: list[tuple[str, list[str], Callable[[Any], object], object]] = [  # text, overrides, value of the scenario
    (STAR + ASKS, ["cluster.hosts=12", "cluster.world_size=3"], lambda read: read.cluster.hosts, ("h0", "h1", "h2")),
    (HERE + ASKS, ["cluster.world_size=3"], lambda read: read.cluster.world_size, 3),
    (STAR + ASKS, ["cluster.transport=gloo-tcp"], lambda read: read.cluster.transport, None),
    (STAR + ASKS, [SIZES], lambda read: (read.collective.sizes, read.collective.dtype), ((1000, 8), "float32")),
    (STAR + ASKS, ["collective.sizes=1003 B", "collective.dtype=float64"], lambda read: read.collective.sizes, (1000,)),
    (STAR + ASKS, BROADCAST, lambda read: read.collective.root, 3),
    (STAR + ASKS, [], lambda read: read.title, "asked"),
    (TITLED, [], lambda read: read.title, "A question"),
    (STAR + ASKS, ["title=A = B"], lambda read: read.title, "A = B"),
    (
        LINKS + ASKS,
        ["cluster.link.1.bandwidth=8 bit/s"],
        lambda read: read.cluster.graph.edges["s0", "h1"]["bandwidth"],
        1.0,
    ),
    (STAR + ASKS, ["collective.op=max"], lambda read: read.collective.op, "max"),
    (STAR + ASKS, ["cluster.transport=ideal"], lambda read: read.cluster.transport, IDEAL),
    (STAR + ASKS, ["training.gradient_sync=ddp"], lambda read: read.trainings[0].sync_name, "ddp"),
]


@pytest.mark.parametrize(("text", "overrides", "value", "expected"), READ)
def test_scenario_key_or_set_option_gives_the_expected_value(tmp_path, text, overrides, value, expected) -> None:
    assert value(load(write(tmp_path, text), overrides)) == expected


def test_training_has_defaults_for_missing_keys(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, STAR + TRAINS))
    ring = scenario.trainings[0].gradient_sync
    assert scenario.trainings == (Training(ring),)
    assert (ring is not None and ring.full_name, scenario.collective) == ("all_reduce/ring", None)


def test_training_reads_all_keys_of_a_table(tmp_path: Path) -> None:
    text = """
    [training]
    model = "resnet18"
    dataset = "cifar10"
    batch_size = 64
    epochs = 5
    seed = 7
    gradient_sync = ["ddp", "naive"]
    learning_rate = 1
    scale_learning_rate = true
    data_folder = "pictures"
    [training.compute]
    forward = "12 ms"
    backward = "30 ms"
    optimizer = "500 us"
    """
    ddp, naive = load(write(tmp_path, STAR + text)).trainings
    assert (ddp.gradient_sync, ddp.sync_name, naive.sync_name) == (None, "ddp", "naive")
    assert ddp.compute == naive.compute == ComputePhases(0.012, 0.030, 0.0005)
    assert (ddp.dataset, ddp.batch_size, ddp.epochs, ddp.seed) == ("cifar10", 64, 5, 7)
    assert (ddp.learning_rate, ddp.scale_learning_rate) == (1.0, True)
    assert ddp.data_folder == str(tmp_path / "pictures")


def test_algorithm_file_is_relative_to_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.py").write_text(
        "from collectives import algorithm\n"
        "@algorithm('all_reduce', chunks=lambda world_size, slices: slices)\n"
        "def fancy(rank, world_size, slices=2):\n    yield ()\n"
    )
    reference = write(tmp_path, STAR + ASKS)
    collective = load(reference, ['collective.algorithms=["my.py:fancy", {name = "my.py", slices = 3}]']).collective
    assert collective is not None
    assert [algorithm.full_name for algorithm in collective.algorithms] == [
        "all_reduce/fancy",
        "all_reduce/fancy[slices=3]",
    ]
    assert collective.algorithms[1].chunks(4) == 3
    monkeypatch.chdir(tmp_path)  # beside a shipped scenario nobody's files lie
    assert load("star8", ["training.gradient_sync=my.py:fancy"]).trainings[0].sync_name == "fancy"


def test_gradient_sync_that_adds_in_differing_orders_is_rejected(tmp_path: Path) -> None:
    reference, sync = write(tmp_path, STAR + TRAINS), "training.gradient_sync=unchunked_ring"
    assert load(reference, [sync, "cluster.world_size=2"]).trainings[0].sync_name == "unchunked_ring"
    with pytest.raises(InputError, match="its 3 ranks add in different orders, so model replicas would diverge"):
        load(reference, [sync, "cluster.world_size=3"])
    with pytest.raises(InputError, match="its 32 ranks add"):
        load(reference, [sync, "cluster.hosts=64"])
    with pytest.raises(InputError, match="its 8 ranks add"):
        what_if = "what_if=[{title='more', cluster={topology='star', hosts=8, bandwidth='1 Gbit/s', latency='1 us'}}]"
        load(reference, [sync, "cluster.world_size=2", what_if])


def test_global_batch_size_is_divided_by_the_ranks(tmp_path: Path):
    asks = write(tmp_path, STAR + TRAINS + "global_batch_size = 192\n")
    assert [load(asks, [f"cluster.world_size={ranks}"]).trainings[0].batch_size for ranks in (1, 2, 3)] == [192, 96, 64]
    with pytest.raises(InputError, match=r"global_batch_size 190 is not divisible by 3 ranks; use a multiple of 3"):
        load(asks, ["training.global_batch_size=190", "cluster.world_size=3"])
    with pytest.raises(InputError, match=r"batch_size .* and global_batch_size .* are mutually exclusive"):
        load(asks, ["training.batch_size=64"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cluster.hosts", "--set cluster.hosts: must be section.key=value, for example cluster.world_size=4"),
        ("cluster..hosts=3", "--set cluster..hosts=3: must be section.key=value"),
        ("title.x=3", "--set title.x=3: cannot set 'x', because 'a' is not a table"),
        (
            "collective.sizes.2=8 B",
            "--set collective.sizes.2=8 B: '2' is not an index of a list of 2 entries",
        ),
        ("cluster.hosts=1\n[evil]", 'cluster.hosts = "1\\n[evil]" must be an integer'),
        ("cluster.host=1", "asked.toml with --set cluster.host=1: unknown key cluster.host; did you mean hosts?"),
    ],
)
def test_invalid_override_is_rejected(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load(write(tmp_path, 'title = "a"' + STAR + ASKS), [override])


LINE = FittedLine(2e-5, 1e-9, 0.0)
MEASURED = Calibration(2, 1, one_way=LINE, both_ways=LINE, reduction=LINE)


def test_gloo_tcp_takes_its_transport_from_the_calibration(tmp_path: Path):
    cluster = load(write(tmp_path, STAR + 'transport = "gloo-tcp"\n' + ASKS)).cluster
    assert cluster.calibrated_by(MEASURED).transport == MEASURED.transport(1448 / 1538)
