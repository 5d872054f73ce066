"""Hostile cases of what is around predictions: sweeps, jobs, pictures, checkpoints, logs, and tables of NCCL."""

import json
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import hostile_files as files
from hostile_files import Tree
from hostile_runs import Case

Content = bytes | Callable[[Path], object]
STAR = files.toml(files.SCENARIOS["star"])
TRAINING = files.toml(files.SCENARIOS["training"])
ALONE = (("a.toml", STAR),)


def systematic_commands() -> Iterator[Case]:
    """Yield the cases, none of which is drawn."""
    yield from _sweeps()
    yield from _explanations()
    yield from _jobs()
    yield from _plots()
    yield from _checkpoints()
    yield from _logs()
    yield from _runs()


SWEEPS = (
    "", "=", "cluster.hosts", "cluster.hosts=", "=2..4", "cluster.hosts=..4", "cluster.hosts=4..2",
    "cluster.hosts=0..4", "cluster.hosts=2..4*1", "cluster.hosts=2..4*nan", "cluster.hosts=2..4*1.0000001",
    "cluster.hosts=2..1e400", "cluster.hosts=nan..inf", "cluster.hosts=2..4..8", "cluster.hosts=2,,4",
    "cluster.hosts=2,two", "cluster.hosts=2,4,1000000000", "cluster.bandwidth=1..4", "cluster.bandwidth=1..4Gb/s",
    "cluster.bandwidth=1e-40..1e-39Gbit/s", "cluster.bandwidth=10 Gbit/s,20 Gbit/s,\x1b[31m", "cluster=1,2",
    "cluster." * 500 + "hosts=1,2", "cluster.hosts=" + ",".join(["2"] * 5000), "cluster.hosts=" + "9" * 5000,
    "cluster.topology=star,ring,torus", 'collective.sizes=["1 B"],[]', "title=\x1b[31m,\u202e", "what_if=1,2",
    "faults.seed=1..8", "cluster.hosts=\udcff,2", "cluster.hosts=２..４", "cluster.latency=0 us,1 us",
)  # fmt: skip


def _sweeps() -> Iterator[Case]:
    for number, sweep in enumerate(SWEEPS):
        end = (("--json", "-"), ("--plot", "a.svg"), ())[number % 3]
        yield Case(f"sweep {sweep[:30]!r}", ("predict", "a.toml", "--sweep", sweep, *end), ALONE, ("a.svg",))
    with_plot = ("predict", "a.toml", "--plot", "a.png")
    for more in ((), ("--sweep", ""), ("--sweep", "cluster.hosts=2,4", "--report", "a.html"), ("--sweep", "x", "-x")):
        yield Case(f"sweep beside {more}", (*with_plot, *more), ALONE)
    for output in ("a.toml", "a.exe", "", "/dev/full", "/proc/x.png", "a.toml/x.svg"):
        sweep = ("--sweep", "cluster.hosts=2,4", "--plot", output)
        yield Case(f"sweep drawn to {output}", ("predict", "a.toml", *sweep), ALONE)
    laughs = files.toml({"cluster": {"topology": "star", "hosts": 4, "bandwidth": "1 bit/s", "latency": "1 s"}})
    sweep = ("--sweep", "cluster.hosts=2,4", "--json", "-")
    yield Case("sweep of nothing", ("predict", "a.toml", *sweep), (("a.toml", laughs),))


NCCL_CLUSTER = {"preset": "dgx-h100", "nodes": 2, "transport": "nccl"}
NCCL_ASKS = {"name": "all_reduce", "algorithms": ["nccl"], "sizes": ["1 MiB"]}
NCCL_SETTINGS: tuple[tuple[str, Tree], ...] = (
    ("NCCL_ALGO", "ring;tree"), ("NCCL_ALGO", ""), ("NCCL_ALGO", "\x1b[31m"), ("NCCL_ALGO", "allreduce:tree;" * 2000),
    ("NCCL_PROTO", ["LL"]), ("NCCL_MAX_NCHANNELS", 10**30), ("NCCL_MIN_NCHANNELS", "x"), ("NCCL_NVLS_ENABLE", True),
    ("NCCL_BUFFSIZE", -1), ("NCCL_NTHREADS", 33), ("__class__", 1), ("version", 2.19), ("version", "2.19.3.4.5"),
)  # fmt: skip


def _explanations() -> Iterator[Case]:
    asked = ({"collective": NCCL_ASKS}, {"collective": {**NCCL_ASKS, "sizes": ["1 B", "1 TiB"]}})
    for name, value in NCCL_SETTINGS:
        content = files.toml({"cluster": NCCL_CLUSTER, **asked[0], "nccl": {name: value}})
        yield Case(f"explain with {name}={str(value)[:20]!r}", ("explain", "a.toml"), (("a.toml", content),))
    clusters: dict[str, Tree] = {
        "many": {"nodes": 10**6}, "none": {"nodes": 0}, "half": {"nodes": 1.5}, "one gpu": {"nodes": 1, "gpus": 1},
        "no gpu": {"gpus": 0}, "more gpus": {"gpus": 64}, "placed": {"placement": ["n0-gpu0"] * 16},
        "other": {"preset": "rtx3090-pcie-4x"}, "not nccl": {"transport": "gloo-tcp"}, "torus": {"topology": "torus"},
    }  # fmt: skip
    for name, changes in clusters.items():
        content = files.toml({"cluster": {**NCCL_CLUSTER, **changes}, **asked[1]})
        command = ("explain", "a.toml", *(("-o", "a.svg") if len(name) % 2 else ("--json", "-")))
        yield Case(f"explain {name}", command, (("a.toml", content),), ("a.svg",))


OPTIONS_OF_JOBS = (
    "", " ", "a b", "-x", "--x", "a;b", "$(id)", "`id`", "a\nb", "a\x00b", "\x1b[31m", "\u202e", "é", "'", '"', "\\",
    "#", "A" * 5000, "../x", "/", "a=b", "0", "-1", "nan", "9" * 400, "1-", "1-00", ":", "00:00:00", "1e9",
)  # fmt: skip
SLURM = (
    "-p", "-A", "--interface", "--python", "--sbatch", "--before", "-t", "-c", "-N", "--gpus-per-node",
    "--checkpoints", "--log-dir", "--max-restarts", "-o",
)  # fmt: skip


def _jobs() -> Iterator[Case]:
    for number, option in enumerate(SLURM):
        for shift in range(3):
            value = OPTIONS_OF_JOBS[(7 * number + 11 * shift) % len(OPTIONS_OF_JOBS)].replace("\x00", "")
            words = ("slurm", "a.toml", option, value)
            yield Case(f"slurm {option} {value[:20]!r}", words, ALONE, (value,) if option == "-o" else ())
    for name in ("nowhere.toml", "a.toml", "this-machine", "quickstart", "\x1b[31m", "a b.toml", "a\u202eb.toml"):
        there = ((name, STAR), ("folder/file", b"")) if name.endswith("toml") and "no" not in name else ()
        for more in ((), ("-o", "a.toml"), ("-o", "folder"), ("-N", "3"), ("--set", "training=1")):
            writes = (more[1],) if more[:1] == ("-o",) and more[1] != name else ()
            yield Case(f"slurm of {name!r} {more}", ("slurm", name, *more), there, writes)


def _plots() -> Iterator[Case]:
    trace = b'{"kind": "trace"}'
    for kind in ("step", "scaling", "path", "cluster", "", "\x1b[31m", "step scaling"):
        for source in ("a.toml", "t.toml", "a.json", "nowhere", "this-machine", "."):
            words = ("plot", kind, source, "-o", "a.svg")
            there = (*ALONE, ("t.toml", TRAINING), ("a.json", trace))
            yield Case(f"plot {kind!r} of {source}", words, there, ("a.svg",))
    sizes = [("--size", word) for word in (*files.ODD_WORDS, "1 TiB", "0 B")]
    names = [("--algorithm", "nobody"), ("--algorithm", "\x1b[31m"), ("--calibration", "a.toml")]
    for more in (*sizes, *names, ("-o", "a.toml"), ("-o", "a.gif"), ("-o", "")):
        words = ("plot", "path", "a.toml", *(() if more[0] == "-o" else ("-o", "a.svg")), *more)
        yield Case(f"plot {more}", words, ALONE, ("a.svg",))


NO_FOLDERS = ("/proc/x", "/dev/null/x", "a.toml/x", "n" * 300, "/sys")
PT = b"PK\x03\x04 no checkpoint"
MANIFEST: dict[str, Tree] = {
    "schema_version": 1, "serial": 1, "step": 3, "epoch": 0, "world_size": 4, "training": {"model": "resnet18"},
    "bytes": len(PT), "sha256": sha256(PT).hexdigest(),
}  # fmt: skip
NAME = "c/step-00000003"
RING = ("--set", "training.gradient_sync=ring")  # no real run begins, as what is to be gone on from is refused
CHANGES: dict[str, Tree] = {
    "whole": {}, "cut": {"bytes": len(PT) + 1}, "corrupt": {"sha256": "0" * 64}, "of no step": {"step": None},
    "of more ranks": {"world_size": 10**30}, "of another version": {"schema_version": 99},
    "of another": {"training": {"\x1b[31m": "\u202e"}}, "of nan": {"epoch": float("nan")},
}  # fmt: skip


def _checkpoints() -> Iterator[Case]:
    for name, changes in CHANGES.items():
        there = (
            ("a.toml", TRAINING),
            (f"{NAME}.pt", PT),
            (f"{NAME}.json", json.dumps({**MANIFEST, **changes}).encode()),
        )
        yield Case(f"checkpoint {name}", ("run", "a.toml", *RING, "--resume", f"{NAME}.pt"), there)
    manifests: dict[str, Content] = {
        "list": b"[]", "cut": json.dumps(MANIFEST).encode()[:-20], "deep": b"[" * 100_000, "bytes": b"\xff\xfe",
        "pipe": os.mkfifo, "zero": lambda path: path.symlink_to("/dev/zero"),
    }  # fmt: skip
    for name, content in manifests.items():
        there = (("a.toml", TRAINING), (f"{NAME}.pt", PT), (f"{NAME}.json", content))
        yield Case(f"manifest {name}", ("run", "a.toml", *RING, "--resume", f"{NAME}.pt"), there)
    for resume in ("", "auto", "nowhere.pt", "c", ".", "/dev/zero", "/dev/full", f"{NAME}.json",
    "n" * 300, "\x1b[31m", "a.toml",
                   "/proc/self/mem", "\udcff", "AUTO", "-1"):  # fmt: skip
        there = (("a.toml", TRAINING), (f"{NAME}.pt", PT), (f"{NAME}.json", json.dumps(MANIFEST).encode()))
        yield Case(f"resume {resume[:20]!r}", ("run", "a.toml", *RING, "--resume", resume), there)
    folders: dict[str, Content] = {
        "c": b"a file", "c/ring": b"a file", "c/ring/.lock": os.mkfifo, "c/ddp/.lock": lambda path: path.mkdir(),
    }  # fmt: skip
    for name, content in folders.items():
        keys = ("--set", 'training.checkpoints="c"')
        yield Case(f"checkpoints in {name}", ("run", "a.toml", *keys), (("a.toml", TRAINING), (name, content)))
    for folder in NO_FOLDERS:
        keys = ("--set", f'training.checkpoints="{folder}"')
        yield Case(f"checkpoints in {folder[:20]}", ("run", "a.toml", *keys), (("a.toml", TRAINING),))


ROW = b'{"kind": "step", "step": 0, "gradient_sync": "ring", "attempt": 0}\n'


def _logs() -> Iterator[Case]:
    contents: dict[str, Content] = {
        "row": ROW, "text": b"precious\n", "cut": ROW + b'{"kind": "st', "deep": b"[" * 100_000 + b"\n",
        "attempt": ROW.replace(b"0}", b"1e999}"), "folder": lambda path: path.mkdir(), "pipe": os.mkfifo,
        "link": lambda path: path.symlink_to("../precious"),
    }  # fmt: skip
    for name, content in contents.items():
        there = (("a.toml", TRAINING), ("precious", b"precious, and no end of line"), ("l/metrics.jsonl", content))
        command = ("run", "a.toml", "--log-dir", "l", "--resume", "nowhere.pt")
        yield Case(f"log {name}", command, there)
        yield Case(f"log afresh {name}", (*command[:4], "--set", "cluster.hosts=2000"), there)
    for folder in (*NO_FOLDERS, "", ".", "a.toml", "/proc/self", "\x1b[31m/..", "\udcff"):
        more = ("--set", "cluster.hosts=2000")
        yield Case(f"logs in {folder[:20]!r}", ("run", "a.toml", "--log-dir", folder, *more), (("a.toml", TRAINING),))
    for steps in (*files.ODD_WORDS, "3-1", "0-99999", "1-2-3"):
        more = ("--log-dir", "l", "--profile", steps, "--set", "cluster.hosts=2000")
        yield Case(f"profile of {steps[:20]!r}", ("run", "a.toml", *more), (("a.toml", TRAINING),))


def _runs() -> Iterator[Case]:
    many = ("--set", "cluster.hosts=2000")
    for more in (
        ("--profile", "1"), ("--tensorboard",), ("--trace", "/proc/x"), ("--json", "a.toml"), ("--resume", "auto"),
        ("--log-dir", "l"), ("--backend", "nccl"), ("--emulate",), ("--emulate", "--log-dir", "a.toml"),
        ("--calibration", "a.toml"), ("--timeout", "0.0"), ("--timeout", "1e308"), ("--explain", "--backend", "mpi"),
    ):  # fmt: skip
        yield Case(f"run {more}", ("run", "a.toml", *more, *many), ALONE)
