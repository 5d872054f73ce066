"""Emulated clusters: their plan, their verification, and their complete removal."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import real_workers
import torch
import torch.distributed as dist
from command_line import Ringlab, run_python

import realcomm
import simcomm
from collectives.errors import InputError, RunFailed
from realcomm.emulation import builder as building
from realcomm.emulation.network import Ability, emulate, try_emulation
from realcomm.emulation.plan import NetworkPlan, plan_network, shapers
from ringlab.scenario import load
from scenarios import shipped
from simcomm.cluster.routing import ecmp

TESTS = Path(__file__).parent
TWO_RACKS = simcomm.from_links(
    [*((f"h{i}", f"s{i // 2}", "40 Mbit/s", "0 us") for i in range(4)), ("s0", "s1", "20 Mbit/s", "0 us")]
)
SWITCH_RING = simcomm.from_links(
    [(f"h{i}", f"s{i}", "20 Mbit/s", "0 us") for i in range(4)]
    + [(f"s{i}", f"s{(i + 1) % 4}", "20 Mbit/s", "0 us") for i in range(4)]
)


@pytest.fixture(scope="module")
def namespaces() -> Ability:
    """The abilities of this machine; skip the test if it has no namespaces."""
    try:
        return try_emulation()
    except RunFailed as error:
        pytest.skip(str(error))


# Plans


def test_emulation_plan_has_hosts_bridges_links_and_shapers():
    plan = plan_network(TWO_RACKS.on_first(3))
    assert plan.hosts == ("h0", "h1", "h2") and plan.bridges == ("s0", "s1")
    assert {(link.src, link.dst): link.bandwidth * 8 / 1e6 for link in plan.directions}["s0", "s1"] == 20
    assert "h3" not in {link.src for link in plan.directions}  # no rank is there
    assert plan.forwarding["s0"] == {"h0": "h0", "h1": "h1", "h2": "s1", "s1": "s1"}
    assert plan.rate == pytest.approx(3 * 40e6 / 8)
    first, second = shapers(plan_network(simcomm.star(2, "10 Mbit/s", "250 us")), "h0", delays=True)
    assert "root handle 1: netem delay 250us" in first and "parent 1:" in second and "tbf rate 10000000bit" in second


@pytest.mark.parametrize(
    "cluster",
    [
        TWO_RACKS,
        SWITCH_RING,
        simcomm.torus((2, 3), "10 Mbit/s", "0 us"),
    ],
)
def test_emulation_plan_forwards_along_the_routes(cluster: simcomm.Cluster):
    plan = plan_network(cluster)
    for src in plan.hosts:
        for dst in {*plan.hosts} - {src}:
            route = [src]
            while route[-1] != dst:
                here = route[-1]
                first = next((link.dst for link in plan.directions if link.src == here), "")
                route.append(plan.forwarding[here][dst] if here in plan.forwarding else first)
            assert tuple(route) == cluster.router().route(src, dst)


@pytest.mark.parametrize(
    "cluster, word",
    [
        (simcomm.this_machine(2), "the cluster is this machine"),
        (simcomm.preset("dgx-h100"), "only hosts and switches are supported"),
        (simcomm.star(70, "1 Mbit/s", "0 us"), "it has 70 hosts; at most 64 are supported"),
        (replace(simcomm.fat_tree(4, "1 Mbit/s", "0 us"), routing=ecmp(seed=3)), "depending on the sender"),
    ],
)
def test_cluster_that_cannot_be_emulated_is_rejected(cluster: simcomm.Cluster, word: str):
    with pytest.raises(InputError, match=word):
        emulate(cluster)


# Networks


def users_of(namespaces: Iterable[int]) -> list[int]:
    """Processes inside one of these network namespaces, or with it open."""
    users = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = {str(link.readlink()) for link in (process / "ns" / "net", *(process / "fd").iterdir())}
        except OSError:
            continue
        if links & {f"net:[{inode}]" for inode in namespaces}:
            users.append(int(process.name))
    return users


@pytest.mark.namespaces
def test_ranks_reduce_over_emulated_links(namespaces: Ability):
    before = {link.name for link in Path("/sys/class/net").iterdir()}
    with emulate(TWO_RACKS) as network:
        assert len(network.goodputs) == 10
        trace = realcomm.run("all_reduce/ring", TWO_RACKS, 1 << 18, network=network, warmup=0, repetitions=1)
        names = {Path(namespace.files[-1]).stat().st_ino for namespace in network.namespaces}
        assert len(names) == 4 and users_of(names)
    assert trace.facts["wrong"] == 0
    wire = 6 * (1 << 16) / (20e6 / 8 * 1448 / 1514)  # six messages, one after the other, over the trunk
    assert wire * 0.98 < trace.elapsed < wire * 1.5
    assert users_of(names) == []
    assert {link.name for link in Path("/sys/class/net").iterdir()} == before


@pytest.mark.namespaces
@pytest.mark.parametrize("cluster", [SWITCH_RING, simcomm.ring(4, "20 Mbit/s", "0 us")], ids=["switches", "hosts"])
def test_emulated_ring_has_no_forwarding_loop_after_a_failure(cluster: simcomm.Cluster, namespaces: Ability):
    with emulate(cluster) as network:
        if cluster is not SWITCH_RING:
            assert network.plan.bridges == network.plan.hosts and len(network.goodputs) == 8
        with pytest.raises(realcomm.RankFailed, match="rank 1"):
            realcomm.launch(real_workers.fail_on, 4, 1, "raise", network=network)
        trace = realcomm.run("all_to_all/direct", cluster, 4096, network=network, warmup=0, repetitions=1)
    assert trace.facts["wrong"] == 0


EMULATES = """
import json
from ringlab.commands.doctor import _emulation
found = _emulation()
print(json.dumps([found.works, found.detail]))
"""


@pytest.mark.namespaces
@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="nothing here makes root a common user")
def test_emulation_works_for_an_unprivileged_user(namespaces: Ability):
    caps = [f"--{kind}=-all,+dac_read_search" for kind in ("bounding-set", "inh-caps", "ambient-caps")]  # root's home
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *caps]
    before = as_nobody if os.geteuid() == 0 else ()
    done = run_python("-c", EMULATES, folder=Path("/tmp"), before=before, HOME="/tmp", TMPDIR="/tmp")
    if "Operation not permitted" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])  # a system that gives ordinary users no namespaces
    assert done.returncode == 0, done.stderr
    works, text = json.loads(done.stdout)
    assert works and text.startswith("by a user namespace; supports"), text


@pytest.mark.namespaces
def test_inaccurate_link_is_reported_with_its_goodput(namespaces: Ability):
    plan = plan_network(simcomm.star(2, "20 Mbit/s", "0 us"))
    wrong = replace(plan, directions=tuple(link._replace(bandwidth=link.bandwidth * 1.05) for link in plan.directions))
    with ProcessPoolExecutor(1, get_context("fork")) as pool, pytest.raises(RunFailed) as caught:
        pool.submit(verify_as, plan, wrong).result()
    assert re.search(r"the link h0 - s0 has a TCP goodput of 19.1.*, not 20.08 Mbit/s", str(caught.value))
    assert "and 3 more links are off" in str(caught.value)


def verify_as(plan: NetworkPlan, other: NetworkPlan) -> None:
    builder = building.NetworkBuilder(plan)
    builder.plan, building.ATTEMPTS = other, 1
    builder.verify()


def reduce_some(rank: int, world_size: int) -> None:
    dist.reduce(torch.zeros(1 << 14), 0)


@pytest.mark.namespaces
def test_dropped_packets_invalidate_the_run_and_name_the_link(namespaces: Ability):
    ten_packets = ["tbf", "rate", "20mbit", "burst", "4kb", "limit", "15000"]
    with emulate(simcomm.star(3, "20 Mbit/s", "0 us")) as network:
        for place in network.namespaces:
            call = ["nsenter", f"--net={place.files[-1]}", "tc", "qdisc", "replace", "dev", place.interface, "root"]
            subprocess.run([*call, *ten_packets], check=True)
        with pytest.raises(RunFailed, match=r"the queue of the link h[12] - s0 dropped \d+ packets"):
            realcomm.launch(reduce_some, 3, network=network)


# Removal


KILLED = """
import os, time
import realcomm, simcomm
from realcomm.launching.server import server_folder
def work(rank, world_size):
    if rank == 0:
        print("at work", flush=True)
    time.sleep(60)
if __name__ == "__main__":
    with realcomm.emulate(simcomm.star(2, "20 Mbit/s", "0 us")) as network:
        print(*{os.stat(each.files[-1]).st_ino for each in network.namespaces}, flush=True)
        print(server_folder(), flush=True)
        realcomm.launch(work, 2, network=network)
"""


@pytest.mark.namespaces
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_killed_launcher_leaves_no_emulated_network(namespaces: Ability, number: signal.Signals, tmp_path: Path):
    (tmp_path / "killed.py").write_text(KILLED)
    temporary, errors = tmp_path / "temporary", tmp_path / "errors"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(TESTS.parents[1])}
    call = [sys.executable, str(tmp_path / "killed.py")]
    with (
        errors.open("w", encoding="utf-8") as stderr,
        subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True) as done,
    ):
        assert done.stdout is not None
        names = {int(word) for word in done.stdout.readline().split()}
        folder = Path(done.stdout.readline().rstrip("\n"))  # of the server that ranks are forked from
        if done.stdout.readline() != "at work\n":
            raise RunFailed(errors.read_text(encoding="utf-8"))
        assert folder.is_dir() and len(names) == 2 and len(users_of(names)) >= 3
        done.send_signal(number)
        done.wait(20)
    until = time.monotonic() + 10
    while (users_of(names) or folder.exists() or [*temporary.iterdir()]) and time.monotonic() < until:
        time.sleep(0.05)
    assert users_of(names) == [] and [*temporary.iterdir()] == [] and not folder.exists()


def test_network_rejects_a_wrong_rank_count_and_use_after_close():
    network = emulate(simcomm.star(2, "20 Mbit/s", "0 us"))
    with pytest.raises(InputError, match="network must have 3 ranks, one for each host, not 0"):
        realcomm.launch(real_workers.sum_of_ranks, 3, network=network)
    with pytest.raises(InputError, match="closed"):
        network.mark()


# Commands


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("emulated/")])
def test_shipped_emulated_scenarios_have_feasible_plans(name: str):
    plan = plan_network(load(name).cluster)
    assert len(plan.ranks) in range(4, 9) and plan.rate * 8 <= 400e6


@pytest.mark.namespaces
def test_run_reports_the_emulated_cluster(namespaces: Ability, ringlab: Ringlab):
    sizes = ["--set", "collective.sizes=16 KiB", "--set", "collective.algorithms=ring", "--set", "cluster.latency=5 us"]
    for _ in range(3):  # other tests may disturb the network, which is then rejected
        done = ringlab("run", "emulated/star4", "--emulate", *sizes, "--json", "-")
        if "cannot emulate" not in done.err:
            break
    else:
        raise RunFailed(done.err)
    assert done.status == 0, done.err
    answer = json.loads(done.out)
    assert answer["emulated"] is True and [row["algorithm"] for row in answer["collectives"]] == ["ring"]
    assert "emulated: 4 hosts, 4 links, each within 0." in done.err
    if not namespaces.delays:
        assert "without latencies (up to 5 us), because this kernel cannot delay packets" in done.err


@pytest.mark.namespaces
def test_rejection_of_too_fast_network_suggests_a_bandwidth(namespaces: Ability, ringlab: Ringlab):
    done = ringlab("run", "star8", "--emulate")
    assert done.status == 2 and "its hosts together can send 80 Gbit/s" in done.err
    assert "--set cluster.bandwidth='" in done.err


@pytest.mark.parametrize("command", ["run", "compare"])
def test_emulation_rejects_this_machine_and_faults(command: str, ringlab: Ringlab):
    assert "cluster: 2 ranks of this machine cannot be emulated" in ringlab(command, "quickstart", "--emulate").err
    faults = ["--set", "faults.rank=[{rank = 1, slowdown = 2}]"]
    assert "faults cannot be reproduced on an emulated network" in ringlab(command, "star8", "--emulate", *faults).err


@pytest.mark.slow
@pytest.mark.namespaces
def test_compare_predicts_four_hosts_from_measurements_of_two(namespaces: Ability):
    answer = load("emulated/star4", "collective.sizes=1 MiB", 'collective.algorithms=["ring", "naive"]').compare(
        emulate=True
    )
    assert answer.calibration is not None and answer.calibration.pair is not None
    assert answer.calibration.pair.bandwidth == 50e6 / 8
    assert answer.calibration.message_classes == [], "no collective was measured"
    assert [row.algorithm for row in answer.collectives] == ["ring", "naive"]
    for row in answer.collectives:  # a link takes 0.168 s for 1 MiB, of which it carries 1.5 or more
        for seconds in (row.time_s.predicted, row.time_s.measured):
            assert seconds is not None and seconds > 1.5 * 0.168
