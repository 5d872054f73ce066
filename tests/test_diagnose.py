"""The verdicts of ``ringlab diagnose``: slow or standing still, which host, rank or link, and normal."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import Ringlab
from pasted_files import NCCL_LOG, dgx_matrix, gpus_listed, nccl_tests, write

import ringlab
from benchmarks.studies.diagnosed_emulation import BROKEN, FOLDER, files_of
from collectives.errors import InputError
from simcomm.nccl.descriptions import describe_preset, describe_system
from simcomm.nccl.predict import predict_seconds

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def names(answer: ringlab.DiagnosisAnswer) -> list[str]:
    """The causes, the likeliest first."""
    return [one.name for one in answer.causes]


def healthy_rows(times: float = 1.0) -> list[tuple[int, float]]:
    """Sizes and busbw of eight H100 as the model has them, or so many times slower."""
    sizes = [2**24, 2**26, 2**28, 2**30]
    seconds = predict_seconds(describe_preset("dgx-h100", 1, 8), "all_reduce", sizes)
    return [(size, size * 1.75 / one / times / 1e9) for size, one in zip(sizes, seconds.tolist(), strict=True)]


def healthy_table(times: float = 1.0) -> str:
    """Output of nccl-tests of eight H100 as the model has them, or so many times slower."""
    return nccl_tests(["n0"], 8, H100, healthy_rows(times), per_gpu=False)


@pytest.mark.parametrize(("times", "verdict"), [(1.0, "normal"), (6.0, "slow")])
def test_a_table_is_normal_or_slow_by_its_factor(tmp_path: Path, times: float, verdict: str) -> None:
    answer = ringlab.diagnose([write(tmp_path, "t.txt", healthy_table(times))])
    assert (answer.verdict, answer.factor) == (verdict, pytest.approx(times, rel=0.01))
    low, high = answer.factor_interval or (0.0, 0.0)
    assert low < times < high
    assert times > 1 or answer.causes == ()


def test_p2p_switched_off_explains_it_and_says_what_it_would_gain(tmp_path: Path) -> None:
    log = "n0:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
    files = [write(tmp_path, "t.txt", healthy_table(20.0)), write(tmp_path, "nccl.log", log)]
    answer = ringlab.diagnose(files)
    first = answer.causes[0]
    assert (answer.verdict, first.name, first.file, first.line) == ("slow", "p2p-disabled", str(files[1]), 1)
    assert first.gain is not None
    assert first.gain > 5
    assert "unset NCCL_P2P_DISABLE" in first.remedy


def test_a_setting_that_costs_nothing_by_prediction_is_no_cause(tmp_path: Path) -> None:
    log = "n0:1:1 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0\n"
    files = [write(tmp_path, "t.txt", nccl_tests(["n0"], 8, A100, [(2**30, 60.0)])), write(tmp_path, "nccl.log", log)]
    assert "nvls-disabled" not in names(ringlab.diagnose(files))  # an A100 has no NVLS


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("NCCL INFO Failed to open libibverbs.so[.1]\nn0:1:1 [0] NCCL INFO Using network Socket", "sockets-for-ib"),
        ("NCCL WARN Mismatched collective detected, please check", "collective-mismatch"),
        ("NCCL INFO Could not find a path for pattern 1, falling back to simple order", "graph-search-failed"),
    ],
)
def test_a_known_message_is_a_cause_with_its_line(tmp_path: Path, message: str, cause: str) -> None:
    path = write(tmp_path, "nccl.log", f"\nn0:1:1 [0] {message}\n")
    found = ringlab.diagnose([path]).causes[0]
    assert (found.name, found.file, found.line) == (cause, str(path), 2)


def test_gpudirect_that_is_on_one_host_only_names_the_other(tmp_path: Path) -> None:
    files = [write(tmp_path, "nccl.log", NCCL_LOG.format(gdr="")), write(tmp_path, "gpus.txt", gpus_listed(H100, 8))]
    first = ringlab.diagnose(files).causes[0]
    assert first.name == "no-gpudirect"
    assert "on n0, though it is on n1" in first.text
    assert ringlab.diagnose([write(tmp_path, "ok.log", NCCL_LOG.format(gdr="/GDRDMA"))]).verdict == "unknown"


def test_of_several_tables_the_host_that_no_fast_one_has_is_named(tmp_path: Path) -> None:
    pairs = {("a", "b"): 90.0, ("a", "c"): 88.0, ("a", "d"): 40.0, ("b", "d"): 41.0}
    files = [
        write(tmp_path, f"{one}{other}.txt", nccl_tests([one, other], 8, A100, [(2**30, rate)]))
        for (one, other), rate in pairs.items()
    ]
    first = ringlab.diagnose(files, keys=["net=ib", "nic=100"]).causes[0]
    assert first.name == "slow-host"
    assert first.text.startswith("d is in 2 of 2 slow runs")


def test_processes_that_measured_apart_are_told(tmp_path: Path) -> None:
    devices = [
        f"# nThread 1 nGpus 1\n#  Rank  0 Group  0 Pid 1 on n{host} device  0 [0x03] {A100}\n" for host in range(2)
    ]
    rows = nccl_tests(["n0"], 1, A100, [(2**20, 1.0)]).partition("#       size")
    path = write(tmp_path, "t.txt", "".join(devices) + rows[1] + "\n1048576 262144 float sum -1 10.0 104.86 0.00 0\n")
    assert names(ringlab.diagnose([path]))[0] == "no-mpi"


def flight_record(rank: int, last: int, state: str, operation: str = "nccl:all_reduce") -> dict[str, Any]:
    """A rank's dump: collectives 0 to ``last``, the last of them in a state."""
    frames = [{"name": "step", "filename": f"train{rank}.py", "line": 7}]
    entries = [
        {
            "collective_seq_id": number, "profiling_name": operation if number == last else "nccl:all_reduce",
            "state": state if number == last else "completed", "process_group": ["0", "default_pg"], "frames": frames,
            "is_p2p": False, "input_sizes": [[4]],
        }
        for number in range(last + 1)
    ]  # fmt: skip
    return {"version": "2.4", "pg_config": {}, "entries": entries}


def write_records(folder: Path, records: Sequence[dict[str, Any]]) -> list[Path]:
    """Write the dumps of ranks 0, 1 and so on."""
    return [write(folder, f"trace_rank_{rank}.json", json.dumps(one)) for rank, one in enumerate(records)]


def test_a_flight_recorder_names_the_rank_that_did_not_come_and_where_it_is(tmp_path: Path) -> None:
    records = [flight_record(0, 5, "started"), flight_record(1, 3, "completed"), flight_record(2, 5, "started")]
    first = ringlab.diagnose(write_records(tmp_path, records)).causes[0]
    assert first.name == "rank-behind"
    assert "rank 1 did not come to all_reduce 5" in first.text and "train1.py:7" in first.text


def of_groups(rank: int, entries: Sequence[tuple[str, int, str]]) -> dict[str, Any]:
    """A rank's dump: group, number and state of each call; rank 3 is with 1 in group dp, with 2 in group tp."""
    groups = {
        "0": "[0, 1, 2, 3]",
        "dp": "[0, 2]" if rank % 2 == 0 else "[1, 3]",
        "tp": "[0, 1]" if rank < 2 else "[2, 3]",
    }
    calls = [
        {
            "collective_seq_id": number, "profiling_name": "nccl:recv 2<-3" if group == "p2p" else "nccl:all_reduce",
            "state": state, "process_group": [group, ""], "is_p2p": group == "p2p",
        }
        for group, number, state in entries
    ]  # fmt: skip
    members = {name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in groups.items()}
    return {"version": "2.9", "pg_config": members, "entries": calls}


FIRST, ENDED, STANDS = ("0", 1, "completed"), ("dp", 1, "completed"), ("dp", 1, "started")


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([[FIRST, ENDED], [FIRST, STANDS], [FIRST, ENDED], [FIRST]], "rank 3 did not come"),
        ([[FIRST], [FIRST, STANDS]], "all_reduce 1 of group dp (of ranks 1, 3) does not end for rank 1, and of rank 3"),
        # rank 3 waits for 2, which waits for nothing
        ([[FIRST], [FIRST, STANDS], [FIRST], [FIRST, ("tp", 1, "started")]], "rank 2 did not come to all_reduce 1"),
        ([[FIRST, STANDS], [FIRST], [FIRST, ("p2p", 1, "started")], [FIRST]], "waits in recv 2<-3 of group p2p"),
        ([[FIRST, STANDS], [FIRST], [FIRST, STANDS], [FIRST]], "all of ranks 0, 2 came to all_reduce 1"),
    ],
)  # fmt: skip
def test_a_flight_recorder_tells_who_is_late_in_a_group(tmp_path: Path, records: Any, told: str) -> None:
    paths = write_records(tmp_path, [of_groups(rank, one) for rank, one in enumerate(records)])
    answer = ringlab.diagnose(paths)
    assert answer.verdict == "hang"
    assert told in answer.causes[0].text


def test_a_flight_recorder_tells_ranks_in_different_collectives(tmp_path: Path) -> None:
    records = [flight_record(0, 2, "started"), flight_record(1, 2, "started", "nccl:broadcast")]
    assert names(ringlab.diagnose(write_records(tmp_path, records)))[0] == "collective-mismatch"


def test_a_watchdog_log_names_the_rank_that_is_behind(tmp_path: Path) -> None:
    said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, NumelIn=9) ran for 1 ms"
    lines = [f"[rank{rank}]:[E1] [Rank {rank}] {said.format(8 if rank != 2 else 5)}" for rank in range(4)]
    answer = ringlab.diagnose([write(tmp_path, "torchrun.log", "\n".join(lines))])
    assert (answer.verdict, answer.causes[0].name) == ("hang", "rank-behind")
    assert answer.causes[0].text.startswith("rank 2 stands in collective 5, others in 8")


@pytest.mark.parametrize(
    ("status", "cause", "told"),
    [
        (-9, "host-memory", "was killed (SIGKILL)"),
        (1, "rank-ended", "ended with status 1"),
        (-7, "shm-too-small", "SIGBUS"),
    ],
)
def test_a_log_of_torchrun_names_the_rank_that_ended_first(tmp_path: Path, status: int, cause: str, told: str) -> None:
    summary = f"""\
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_10:00:00
  host      : node07
  rank      : 9 (local_rank: 1)
  exitcode  : {status} (pid: 4711)
"""
    answer = ringlab.diagnose([write(tmp_path, "torchrun.log", summary)])
    assert (answer.verdict, answer.causes[0].name, answer.causes[0].line) == ("hang", cause, 7)
    assert answer.causes[0].text.startswith("rank 9 on node07")
    assert told in answer.causes[0].text


def test_few_channels_that_no_variable_asked_for_explain_a_slow_run(tmp_path: Path) -> None:
    table = nccl_tests(["n0"], 8, A100, [(2**28, 30.0), (2**30, 30.0)])
    opened = "n0:1:1 [0] NCCL INFO {} coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels\n"
    for count, expected in ((2, ["few-channels"]), (24, [])):
        files = [write(tmp_path, "t.txt", table), write(tmp_path, "nccl.log", opened.format(count))]
        answer = ringlab.diagnose(files)
        assert (answer.verdict, names(answer)) == ("slow", expected)


def test_a_watchdog_log_of_several_groups_is_told_group_by_group(tmp_path: Path) -> None:
    lines = []
    for rank, group, of_group, waits, done in (
        (3, "PG ID 2 PG GUID 5(dp)", 1, 40, 39),
        (1, "PG ID 2 PG GUID 5(dp)", 0, None, 39),
        (0, "PG ID 0 PG GUID 0(default_pg)", 0, 1201, 1200),
        (2, "PG ID 0 PG GUID 0(default_pg)", 2, 1201, 1200),
    ):
        work = f"WorkNCCL(SeqNum={waits}, OpType=ALLREDUCE, NumelIn=9)"
        if waits:
            lines.append(f"[rank{rank}]:[E1] [Rank {of_group}] Watchdog caught collective operation timeout: {work}")
        at = f"last enqueued NCCL work: {waits or done}, last completed NCCL work: {done}."
        lines.append(f"[rank{rank}]:[E1] [{group} Rank {of_group}] Timeout at NCCL work: {waits}, {at}")
    found = ringlab.diagnose([write(tmp_path, "torchrun.log", "\n".join(lines))]).causes
    assert found[0].text.startswith("rank 1 came as far as collective 39, others to 40")
    assert found[0].text.endswith("they wait in ALLREDUCE 40 of group 5(dp)")
    assert found[1].text.startswith("ranks 1, 3 did not come to ALLREDUCE 1201")


ELSEWHERE = {  # frames of rank 0, the innermost first: what is said of it
    "save_checkpoint (train.py:120)": "rank 0 is in save_checkpoint (train.py:120), and not in a collective",
    "read (ssl.py:1166), recv_into (socket.py:705), log (train.py:150)": "ssl.py:1166), called from log (train.py:150)",
    "wait (connection.py:931), _try_get_data (torch/utils/data/dataloader.py:1133), epoch (train.py:60)": (
        "waits for its loader in wait (connection.py:931), called from epoch (train.py:60)"
    ),
    "__getitem__ (data.py:33), epoch (train.py:60)": "in __getitem__ (data.py:33), called from epoch (train.py:60)",
}


@pytest.mark.parametrize("frames", ELSEWHERE)
def test_stacks_name_the_process_that_is_elsewhere(tmp_path: Path, frames: str) -> None:
    waiting = "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:80)\n"
    text = "".join(
        f'Process {10 + rank}: python train.py --local-rank={rank}\nThread {rank} (active): "MainThread"\n'
        + ("".join(f"    {frame}\n" for frame in frames.split(", ")) if rank == 0 else waiting)
        + "    <module> (train.py:300)\n"
        for rank in range(3)
    )
    answer = ringlab.diagnose([write(tmp_path, "dump.txt", text)])
    assert answer.verdict == "hang"
    assert ELSEWHERE[frames] in answer.causes[0].text


def profile(rank: int, backward_us: int, loading_us: int = 0) -> dict[str, Any]:
    """A profile of torch's of eight steps on a GPU: forward and backward kernels, and an all_reduce behind them."""
    events: list[dict[str, Any]] = []
    at = 0

    def add(name: str, category: str, length: int, **arguments: Any) -> None:
        nonlocal at
        events.append({"ph": "X", "name": name, "cat": category, "ts": at, "dur": length, "tid": 1, "args": arguments})
        at += length

    for step in range(8):
        begin = at
        if loading_us:
            add("data_loading", "user_annotation", loading_us)
        add("forward", "user_annotation", 1000)
        add("backward", "user_annotation", backward_us)
        message = {"Collective name": "allreduce", "In msg nelems": 2**24, "Group size": 2, "dtype": "Float"}
        events.append(
            {"ph": "X", "name": "gemm", "cat": "kernel", "ts": begin, "dur": at - begin, "tid": 7, "args": {}}
        )
        add("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "kernel", 5000 - backward_us, **message)
        events.append(
            {"ph": "X", "name": "nccl:all_reduce", "cat": "user_annotation", "ts": at - 10, "dur": 10, "tid": 1}
        )
        add(f"Optimizer.step#{step}", "cpu_op", 100)
    return {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2}, "host_name": f"host{rank}"}


def write_profiles(folder: Path, profiles: Sequence[dict[str, Any]]) -> Path:
    """Write a profile a rank into a folder."""
    for number, one in enumerate(profiles):
        (folder / f"rank{number}.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(one).encode()))
    return folder


def test_profiles_name_the_rank_that_computes_longer_and_of_a_known_machine_stand_beside_its_prediction(
    tmp_path: Path,
) -> None:
    write_profiles(tmp_path, [profile(0, 1000), profile(1, 3000)])
    answer = ringlab.diagnose(sorted(tmp_path.iterdir()), system="dgx-h100", keys=["nodes=1", "gpus=2"])
    assert answer.verdict == "slow" and "exposed-collectives" in names(answer)
    slow = next(one for one in answer.causes if one.name == "slow-rank")
    assert slow.text.startswith("rank 1 on host1 computes")
    found = answer.training
    assert {one.name for one in found.steps} >= {"forward", "backward", "optimizer"}
    path = {(one.what, one.rank): one.time_s for one in found.critical_path}
    # rank 1 computes 4 ms of each step, while rank 0 waits; the collective begins then; 100 us of optimizer between
    assert path == pytest.approx({("computing", 1): 4e-3, ("all_reduce", 1): 2e-3, ("nothing runs", 1): 7 / 8 * 1e-4})
    assert {one.name: one.slowest_rank for one in found.streams}["all_reduce"] == 0, "it waits in it"
    system = describe_system("two", {"machine": "dgx_h100", "nodes": 1, "gpus": 2})
    (call,) = found.collectives
    due = float(predict_seconds(system, "all_reduce", [2**26])[0])
    assert (call.calls, call.time_s, call.predicted_s) == (8, pytest.approx(2e-3), pytest.approx(due))
    assert found.predicted_step_s == pytest.approx(4e-3 + due, rel=1e-3)
    low, high = found.predicted_step_interval or (0.0, 0.0)
    assert 4e-3 < low < found.predicted_step_s < high


def profile_of_groups(rank: int) -> dict[str, Any]:
    """A profile of four steps: GPUs 0 and 1, and 2 and 3, reduce together, then all; rank 3 begins 2 ms late."""
    group = [0, 1] if rank < 2 else [2, 3]
    events = []
    for step in range(4):
        at, begin = step * 10_000, step * 10_000 + 2000 * (rank == 3)
        met = at + 1000 + 2000 * (rank >= 2)
        kernels = [("gemm", begin, begin + 1000, None), ("nccl", begin + 1000, met + 300, group)]
        kernels += [("gemm", met + 300, met + 4300, None), ("nccl", met + 4300, at + 8000, [0, 1, 2, 3])]
        for name, from_, until, ranks in kernels:
            arguments: dict[str, Any] = {}
            if ranks:
                arguments = {"Collective name": "allreduce", "In msg nelems": 2**22, "dtype": "Float"}
                arguments |= {"Group size": len(ranks), "Process Group Name": "g", "Process Group Ranks": str(ranks)}
            events.append(
                {"ph": "X", "name": name, "cat": "kernel", "ts": from_, "dur": until - from_, "args": arguments}
            )
        events.append({"ph": "X", "name": f"ProfilerStep#{step}", "cat": "user_annotation", "ts": at, "dur": 8000})
    return {
        "traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 4}, "host_name": "n0",
        "deviceProperties": [{"name": H100}],
    }  # fmt: skip


def test_profiles_name_the_rank_that_is_late_in_its_group_and_predict_groups_of_a_host(tmp_path: Path) -> None:
    answer = ringlab.diagnose([write_profiles(tmp_path, [profile_of_groups(rank) for rank in range(4)])])
    first = answer.causes[0]
    # 2 ms of the 9 that a step takes on the critical path, which begins with rank 3's first kernel
    assert first.text.startswith("rank 3 comes last to the collectives: the others wait 22% of a step for it")
    assert "the GPU of rank 3" in answer.causes[1].text
    ours = next(one for one in answer.training.collectives if one.bytes == 2**24 and one.time_s == pytest.approx(3e-4))
    pair = describe_system("two", {"machine": "dgx_h100", "nodes": 1, "gpus": 2})
    assert ours.predicted_s == pytest.approx(float(predict_seconds(pair, "all_reduce", [2**24])[0]))


def test_kernels_alone_tell_the_slow_rank_and_a_rank_given_twice_is_refused(tmp_path: Path) -> None:
    profiles = [profile(rank, 1000 + 2000 * rank) for rank in range(2)]
    for one in profiles:
        one["traceEvents"] = [event for event in one["traceEvents"] if event["cat"] == "kernel"]
    answer = ringlab.diagnose([write_profiles(tmp_path, profiles)])
    assert answer.causes[0].text.startswith("rank 1 on host1 computes 2 times as long")
    assert [(one.what, one.rank) for one in answer.training.critical_path][:2] == [("computing", 1), ("all_reduce", 1)]
    first = tmp_path / "rank0.pt.trace.json.gz"
    with pytest.raises(InputError, match="a second profile of rank 0"):
        ringlab.diagnose([first, first])


def test_gpus_that_wait_for_their_hosts_are_told(tmp_path: Path) -> None:
    idle = [profile(rank, 4000) for rank in range(2)]
    for kernel in (one for rank in idle for one in rank["traceEvents"] if one["name"] == "gemm"):
        kernel["dur"] *= 0.4
    (cause,) = ringlab.diagnose([write_profiles(tmp_path, idle)]).causes
    assert cause.text.startswith("nothing runs on the GPUs for 5"), "3 of 6 ms, and the optimizer"


def test_profiles_tell_that_steps_wait_for_data(tmp_path: Path) -> None:
    answer = ringlab.diagnose([write_profiles(tmp_path, [profile(0, 4000, 6000), profile(1, 4000, 6000)])])
    assert names(answer)[0] == "data-loading"


NAMED = {"healthy": "", "slow-host": "rank 3 (h3)", "slow-link": "3 to 1", "lossy-rank": "the queue of h2"}


@pytest.mark.parametrize("one", BROKEN, ids=lambda one: one.name)
def test_real_runs_on_emulated_clusters_are_told_apart(one: Any) -> None:
    answer = ringlab.diagnose(files_of(one, FOLDER))
    assert answer.verdict == ("slow" if NAMED[one.name] else "normal")
    assert NAMED[one.name] in (answer.causes[0].text if answer.causes else "")
    assert not answer.training.steps, "a collective is no training"


def test_the_command_ends_with_1_where_something_is_wrong_and_writes_json_and_a_page(
    tmp_path: Path, ringlab: Ringlab
) -> None:
    good = write(tmp_path, "good.txt", healthy_table())
    bad = write(tmp_path, "bad.log", "n0:1:1 [0] NCCL WARN Mismatched collective detected\n")
    page, result = tmp_path / "page.html", tmp_path / "result.json"
    assert ringlab("diagnose", str(good), "--report", str(page)).status == 0
    done = ringlab("diagnose", str(bad), "--json", str(result))
    assert (done.status, ringlab("diagnose", str(tmp_path / "none")).status) == (1, 2)
    found = json.loads(result.read_text())
    assert (found["verdict"], found["factor"]) == ("hang", None)
    keys = {"text", "evidence", "file", "line", "remedy", "gain"}
    assert keys <= found["causes"][0].keys()
    assert "<h1>Normal</h1>" in page.read_text()
    assert page.read_text().count("data:image/png") == 1


def test_the_page_of_profiles_draws_the_step_and_says_where_each_cause_is_seen(
    tmp_path: Path, ringlab: Ringlab
) -> None:
    folder = write_profiles(tmp_path, [profile_of_groups(rank) for rank in range(4)])
    page = tmp_path.parent / "page.html"
    assert ringlab("diagnose", str(folder), "--report", str(page)).status == 1
    text = page.read_text()
    assert 'alt="Where the step goes."' in text
    assert f"({folder.name}). To do: look at what it does before them" in text
    assert "How fast is" not in text


def test_near_nics_of_a_dgx_are_no_cause(tmp_path: Path) -> None:
    files = [write(tmp_path, "topo.txt", dgx_matrix()), write(tmp_path, "gpus.txt", gpus_listed(H100, 8))]
    assert ringlab.diagnose(files, keys=["nodes=2"]).causes == ()


def test_metrics_of_a_training_show_its_exposed_sync(tmp_path: Path) -> None:
    row = '{"kind": "step", "step": %d, "forward_s": 0.01, "backward_s": 0.02, "sync_s": 0.05, "optimizer_s": 0.001}'
    path = write(tmp_path, "metrics.jsonl", "".join(f"{row % step}\n" for step in range(8)))
    answer = ringlab.diagnose([path])
    assert names(answer) == ["exposed-collectives"]
    assert answer.causes[0].text.startswith("collectives take 62% of a step")


@pytest.mark.parametrize(("times", "verdict"), [(1.1, "normal"), (3.0, "slow")])
def test_bench_is_held_against_its_own_prediction(tmp_path: Path, times: float, verdict: str) -> None:
    rows = [
        {"algorithm": "all_reduce/ring", "bytes": 64, "time_s": times * one, "predicted_s": one} for one in (1.0, 2.0)
    ]
    path = write(tmp_path, "bench.json", json.dumps({"kind": "bench", "collectives": rows}))
    assert ringlab.diagnose([path]).verdict == verdict


def test_a_rank_that_comes_late_to_collectives_is_told_by_who_waits(tmp_path: Path) -> None:
    profiles = [profile(0, 1000), profile(1, 1000)]
    for one, lasts in zip(profiles, (3000, 300), strict=True):
        for event in one["traceEvents"]:
            if event["name"] == "nccl:all_reduce":
                event["dur"] = lasts
    answer = ringlab.diagnose([write_profiles(tmp_path, profiles)])
    late = next(one for one in answer.causes if one.name == "late-rank")
    assert late.text.startswith("rank 1 comes last")
    assert answer.training.step_s is not None
    assert sum((answer.training.step_parts or {}).values()) == pytest.approx(answer.training.step_s)


@pytest.mark.parametrize(
    "said", ["268435456 Bytes -> Algo 0 proto 0 time 25214.7", "AllReduce: 268435456 Bytes -> Algo TREE proto LL"]
)
def test_a_choice_of_the_tuner_that_our_model_finds_slow_is_told(tmp_path: Path, said: str) -> None:
    log = f"n0:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0\nn0:1:1 [0] NCCL INFO {said}\n"
    files = [write(tmp_path, "nccl.log", log), write(tmp_path, "gpus.txt", gpus_listed(A100, 8))]
    first = ringlab.diagnose(files).causes[0]
    assert (first.name, first.line) == ("tuner-choice", 2)
    assert first.gain is not None
    assert first.gain > 1.3


SMI_TABLE = """\
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   31C    P0             62W /  400W |       4MiB /  81920MiB |      0%      Default |
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0F:00.0 Off |                    3 |
"""
SMI_QUERY = """\
Attached GPUs                             : 2
GPU 00000000:07:00.0
    Product Name                          : NVIDIA GeForce RTX 4090
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : {lanes}x
        Current Power Limit               : {watts}.00 W
        Default Power Limit               : 450.00 W
GPU 00000000:0F:00.0
    Product Name                          : NVIDIA GeForce RTX 4090
"""
IBSTAT = "CA 'mlx5_{}'\n\tPort 1:\n\t\tState: {}\n\t\tRate: {}\n\t\tLink layer: InfiniBand\n"
NIC_SLOT = (
    "5e:00.0 Infiniband controller: Mellanox MT28908\n\tLnkCap:\tSpeed {}GT/s, Width x16\n\tLnkSta:\tSpeed 8GT/s, {}"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SMI_TABLE, ["a GPU has memory errors that cannot be corrected"]),
        (SMI_QUERY.format(lanes=4, watts=450), ["the GPU at 00000000:07:00.0 has 4 of 16 PCIe lanes"]),
        (SMI_QUERY.format(lanes=16, watts=200), ["a GPU is slowed: its power limit is 200 W of 450"]),
        (SMI_QUERY.format(lanes=16, watts=450), []),
        (
            "".join(IBSTAT.format(*row) for row in ((0, "Active", 200), (1, "Down", 10), (2, "Active", 200))),
            ["mlx5_1 is down, 2 others are up at 200 Gbit/s"],
        ),
        (NIC_SLOT.format(16, "Width x16"), ["the NIC at 5e:00.0 runs at PCIe 3.0 of 4.0"]),
        (NIC_SLOT.format(8, "Width x4"), ["the NIC at 5e:00.0 has 4 of 16 PCIe lanes"]),
        ("\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir-\n", []),
        ("NIC statistics:\n     np_cnp_sent: 120034\n     rx_out_of_buffer: 0\n", []),
    ],
)
def test_what_tools_say_of_a_host_is_told(tmp_path: Path, text: str, told: list[str]) -> None:
    answer = ringlab.diagnose([write(tmp_path, "host.txt", text)])
    assert [one.text for one in answer.causes] == told
    gpu = "A100 SXM" if text == SMI_TABLE else "RTX 4090" if "RTX" in text else None
    assert gpu is None or (answer.machine["gpu"], answer.machine["gpus"]) == (gpu, 2)


@pytest.mark.parametrize(
    "before",
    [" 0: ", "[1,3]<stdout>:", "[pod/worker-0/nccl] ", "worker-0 nccl ", "May 01 10:00:{:02} n0 run[7]: ", "> "],
)
def test_a_table_is_read_with_whatever_stands_before_its_lines(tmp_path: Path, before: str) -> None:
    text = "".join(f"{before.format(number)}{line}\n" for number, line in enumerate(healthy_table(6.0).splitlines()))
    assert ringlab.diagnose([write(tmp_path, "t.txt", text)]).factor == pytest.approx(6.0, abs=0.1)


def test_a_matrix_of_p2p_is_read_and_one_that_refuses_it_is_evidence(tmp_path: Path) -> None:
    matrix = " \tGPU0\tGPU1\n GPU0\tX\t{0}\n GPU1\t{0}\tX\n"
    hop = "n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
    files = [write(tmp_path, "gpus.txt", gpus_listed(A100, 2)), write(tmp_path, "nccl.log", hop)]
    for status, line in (("NS", 2), ("OK", 1)):
        first = ringlab.diagnose([write(tmp_path, "p2p.txt", matrix.format(status)), *files]).causes[0]
        assert (first.name, first.line) == ("p2p-not-used", line)


def test_text_in_utf_16_or_packed_is_read_and_all_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "gpus.txt.gz").write_bytes(gzip.compress(gpus_listed(H100, 8).encode()))
    (tmp_path / "topo.txt").write_bytes(dgx_matrix().replace("\n", "\r\n").encode("utf-16"))
    answer = ringlab.diagnose([tmp_path])
    assert (answer.machine["gpu"], answer.machine["link"]) == ("H100 SXM", "nvswitch")
    assert [Path(file).name for file, _ in answer.files] == ["gpus.txt.gz", "topo.txt"]


@pytest.mark.parametrize(("times", "verdict"), [(1.0, "normal"), (1.3, "slow")])
def test_packets_lost_at_some_time_are_no_cause_of_a_run_that_is_fast(
    tmp_path: Path, times: float, verdict: str
) -> None:
    table = write(tmp_path, "t.txt", healthy_table(times))
    lost = write(tmp_path, "nic.txt", "NIC statistics:\n     rx_out_of_buffer: 3\n")
    assert ringlab.diagnose([table, lost]).verdict == verdict


def test_a_connection_that_was_tried_again_is_no_cause_in_the_log_of_a_test_that_went_on(tmp_path: Path) -> None:
    tried = "n0:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
    assert ringlab.diagnose([write(tmp_path, "t.txt", tried + healthy_table())]).verdict == "normal"
    assert ringlab.diagnose([write(tmp_path, "t.txt", tried)]).verdict == "hang"
