"""Valid files of every kind that a command reads, and random mutations of them, drawn with a seed."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from nccl_tests_output import table
from pair_probes import PAIR

import simcomm
from collectives.records.calibration import Calibration

Tree = Any  # what TOML and JSON say: tables, lists, texts, numbers
Path = tuple[str | int, ...]  # to a value in a tree

LONG, HUGE = "x" * 5_000, "x" * 200_000
TEXTS = (
    "", " ", "\t", "\n", "\x00", "\x07\x1b[2J\x1b]0;owned\x07", "\x1b[31mred", "\x9b31m", "[red]markup[/red]", "[/]",
    "[link=file:///etc/passwd]x", ":smile:", "line\nringlab: all is well", "\u202egnp.exe", "\u2066x\u2069", "\u200b",
    "\ufeff", "\ud800", "\udcff", "é", "１０", "²", "٣ Gbit/s", "😀" * 50, "$\\frac{$", "$x^2$", "%s%n",
    "{0.__class__}",
    "{{7*7}}", "<script>alert(1)</script>", "../../etc/passwd", "/", "~", "~nobody/x", ".", "..", "-", "--help",
    "/dev/zero", "/proc/self/mem", "nan", "inf", "-1", "0", "1e999", "9" * 5000, "0x10", "1_000", "10 Gbit/s", "5 us",
    "0 us", "-5 us", "1e99 us", "1e-99 s", "1e99 Gbit/s", "1e-99 bit/s", "1 B", "0 B", "1 TiB", "9999999999 GiB",
    "1e40 B", "0.5 B", "ring", "auto", "ring[", "ring[slices=]", "chain[slices=1000000000]", "chain[slices=-1]", "ddp",
    "no.py", "no.py:x", ":x", "a.py:b.py:c", "all_reduce/ring", "barrier/naive", "star", "dgx-h100", "this-machine",
    "none.json", ".json", "h0", "h1", "s0", "h-1", "h99999999999999999999", LONG, HUGE,
)  # fmt: skip
NUMBERS = (
    0, 1, 2, 3, 7, -1, -(2**63), 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, 1.5, 0.0, -0.0, 1e-320, 1e308, -1e308,
    float("inf"), float("-inf"), float("nan"), 1e-9, 1000, 100_000, 65_537,
)  # fmt: skip
SHAPES: tuple[Callable[[], Tree], ...] = (
    lambda: None, lambda: True, lambda: False, list, dict, lambda: [[]], lambda: [{}], lambda: {"": {}},
    lambda: [0] * 50_000,
    lambda: ["ring"] * 1000, lambda: {"name": "ring", "name2": 1}, lambda: {"a": {"b": {"c": {}}}}, lambda: [None,
    "x", 1],
    lambda: deep(60), lambda: deep(3000), lambda: {f"k{n}": n for n in range(20_000)}, lambda: ["h0", "h0"],
    lambda: ["h0"],
)  # fmt: skip


def deep(levels: int) -> Tree:
    tree: Tree = []
    for _ in range(levels):
        tree = [tree]
    return tree


def hostile_value(draw: random.Random) -> Tree:
    pool = draw.choice((TEXTS, NUMBERS, SHAPES))
    value = draw.choice(pool)
    return value() if callable(value) else value


def places(tree: Tree, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values in a tree, and of the first four in a list."""
    inner = (
        list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))[:4] if isinstance(tree, list) else []
    )
    for key, value in inner if len(path) < 12 else ():
        yield (*path, key)
        yield from places(value, (*path, key))


def mutate(tree: Tree, draw: random.Random) -> Tree:
    """Return a copy of a tree in which up to three values are replaced, deleted, duplicated or moved."""
    tree = json.loads(json.dumps(tree))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        all_places = list(places(tree))
        if not all_places:
            return hostile_value(draw)
        *way, last = draw.choice(all_places)
        place = tree
        for key in way:
            place = place[key]
        _change(place, last, tree, draw)
    return tree


def _change(place: Any, last: Any, tree: Tree, draw: random.Random) -> None:
    match draw.choice(("replace", "replace", "replace", "scale", "delete", "add", "double", "borrow")):
        case "scale" if isinstance(place[last], int | float) and not isinstance(place[last], bool):
            place[last] = place[last] * draw.choice((-1, 0, 10, 1000, 1e6, 0.5, 1e-12))
        case "delete":
            del place[last]
        case "add" if isinstance(place, dict):
            place[draw.choice((*map(str, TEXTS[:40]), "title", "name", "world_size"))] = hostile_value(draw)
        case "double" if isinstance(place, list):
            place.extend([place[last]] * draw.choice((1, 2, 500)))
        case "borrow":
            other: Any = tree
            for key in draw.choice(list(places(tree))):
                other = other[key]
            with suppress(RecursionError):
                place[last] = json.loads(json.dumps(other))
        case _:
            place[last] = hostile_value(draw)


def mutate_text(text: bytes, draw: random.Random) -> bytes:
    """Return a file's bytes truncated, duplicated, in another encoding, or with inserted bytes."""
    at, end = sorted(draw.randrange(len(text) + 1) for _ in range(2))
    decoded = text.decode(errors="replace")
    inserted = draw.choice((b"\x00", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x1b[31m", b"\r", b"]]]]", b"[[[[",
    b'"',
        b"'''", b"{", b"}", b"<!--", b"&x;", b"#", b"\n\n", "\u202e".encode(), b"9" * 6000, b"[" * 4000,
        b"A" * 100_000))  # fmt: skip
    return draw.choice((
        lambda: text[:at], lambda: text[at:], lambda: text[:at] + inserted + text[at:], lambda: text[:at] + text[end:],
        lambda: text[:end] + text[at:], lambda: text + text, lambda: b"\xef\xbb\xbf" + text,
        lambda: decoded.encode("utf-16"),
        lambda: decoded.encode("utf-32"), lambda: text.replace(b"\n", b"\r\n"), lambda: text.replace(b"\n", b"\r"),
        lambda: text[::-1], lambda: b"", lambda: bytes(draw.randrange(256) for _ in range(300)), lambda: text + b"\x00",
        lambda: inserted, lambda: text.replace(b'"', b"'"), lambda: text.upper(),
    ))()  # fmt: skip


def toml(tree: Tree) -> bytes:
    """Return a tree as TOML with inline tables. Values that TOML does not support are written as in JSON."""
    if not isinstance(tree, dict):
        return f"value = {_toml_value(tree)}\n".encode(errors="surrogatepass")
    lines = [f"{json.dumps(str(key))} = {_toml_value(value)}\n" for key, value in tree.items()]
    return "".join(lines).encode(errors="surrogatepass")


def _toml_value(value: Tree) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        try:
            return f"[{', '.join(map(_toml_value, value))}]"
        except RecursionError:
            return "[" * 3000
    if isinstance(value, float):
        return repr(value)
    return str(value) if type(value) is int else json.dumps(value)


def as_json(tree: Tree) -> bytes:
    """Return a tree as JSON, including NaN, Infinity, and lists that are too deep for Python's writer."""
    try:
        return json.dumps(tree).encode()
    except RecursionError:
        return b"[" * 100_000


EACH = {"bandwidth": "10 Gbit/s", "latency": "5 us"}
ASKS = {"name": "all_reduce", "algorithms": ["naive", "ring"], "sizes": ["1 KiB", "64 KiB"]}
COMPUTE = {"forward": "10 ms", "backward": "20 ms", "optimizer": "1 ms"}
FAULTS = {
    "seed": 1, "repetitions": 3, "rank": [{"rank": 1, "slowdown": 2.0, "fails_at": "1 s"}],
    "link": [{"between": ["h0", "s0"], "share": 0.5, "at": "1 us", "lasting": "5 us"}],
    "messages": {"distribution": "uniform", "mean": "1 us"},
    "compute": {"distribution": "exponential", "mean": 0.1},
}  # fmt: skip
LINKS = [{"between": [f"h{n}", "s0"], **EACH} for n in range(4)]
STAR = {"topology": "star", "hosts": 4, **EACH}
TOPOLOGIES: dict[str, dict[str, Tree]] = {
    "star": {"hosts": 4}, "ring": {"hosts": 5}, "torus": {"dimensions": [2, 3], "routing": "ecmp"},
    "fully-connected": {"hosts": 3}, "fat-tree": {"ports": 4, "routing": {"name": "ecmp", "seed": 1}},
    "two-level-tree": {"racks": 2, "hosts_per_rack": 2, "oversubscription": 2.0, "placement": "round-robin"},
}  # fmt: skip
SCENARIOS: dict[str, dict[str, Tree]] = {
    **{
        name: {"title": name, "cluster": {"topology": name, **keys, **EACH}, "collective": {**ASKS, "op": "max"}}
        for name, keys in TOPOLOGIES.items()
    },
    "chain": {"cluster": STAR, "collective": {"name": "broadcast", "root": 1, "sizes": "1 KiB", "dtype": "float64",
              "algorithms": [{"name": "chain", "slices": 4}]}},
    "machine": {"cluster": {"preset": "dgx-h100", "nodes": 1, "gpus_per_node": 4}, "collective": ASKS},
    "links": {
        "cluster": {"link": LINKS, "placement": ["h1", "h0"], "route": [{"path": ["h0", "s0", "h1"]}]},
        "collective": ASKS,
    },
    "what_if": {
        "cluster": STAR, "collective": {**ASKS, "algorithms": ["auto", "ring"]},
        "what_if": [{"title": "faster", "cluster": STAR}, {"title": "bad", "faults": FAULTS}],
    },
    "faults": {"cluster": STAR, "collective": ASKS, "faults": FAULTS},
    "training": {
        "cluster": STAR,
        "training": {
            "gradient_sync": ["ring", "ddp"], "model": "resnet18", "dataset": "digits", "batch_size": 8, "epochs": 1,
            "seed": 0, "learning_rate": 0.1, "scale_learning_rate": True, "compute": COMPUTE,
        },
    },
    "file": {"cluster": {"topology": "net.json"}, "collective": ASKS},
}  # fmt: skip
OTHERS: dict[str, dict[str, Tree]] = {  # scenarios of other commands than predict
    "explain": {
        "cluster": {"preset": "dgx-h100", "nodes": 2, "transport": "nccl"},
        "collective": {"name": "all_reduce", "algorithms": ["nccl"], "sizes": ["4 B", "1 MiB"]},
        "nccl": {"NCCL_ALGO": "ring", "NCCL_PROTO": "LL", "NCCL_MAX_NCHANNELS": 4, "version": "2.19.3"},
    },
    "plan": {
        "title": "t", "training": {"model": "resnet50", "batch_size": 32, "precision": "float32"},
        "plan": {"target_samples": 1e6, "known_rates": {"V100": 400.0}, "most_nodes": 1, "budget": 9},
    },
    "devices": {
        "cluster": {"topology": "star", "hosts": 8, **EACH, "transport": "ideal"},
        "training": {
            "model": "resnet50", "batch_size": 32, "compute": {"rate": 300.0}, "gradient_sync": "ring",
            "loader_rate": 1e3, "price_per_hour": 2.0, "parallelism": {"strategy": "ddp", "bucket_mb": 25},
        },
    },
}  # fmt: skip
RATES = {"bandwidth": 1.25e9, "latency": 5e-6}
TOPOLOGY: dict[str, Tree] = {
    "directed": False, "multigraph": False, "graph": {},
    "nodes": [{"id": "h0"}, {"id": "h1", "kind": "host"}, {"id": "s0", "kind": "switch"}, {"id": "h2"}],
    "edges": [{"source": "h0", "target": "s0", **RATES}, {"source": "h1", "target": "s0", **RATES, "medium": "fibre"},
              {"source": "h2", "target": "s0", **RATES, "shared_bandwidth": 2.5e9, "usable_bandwidth": 1e9}],
}  # fmt: skip
LINE = {"fixed": 2e-5, "per_byte": 1e-9, "worst_residual": 0.1, "points": [[1024, 2e-5], [1048576, 1e-3]]}
CALIBRATION: dict[str, Tree] = {
    "schema_version": Calibration.SCHEMA_VERSION, "ranks": 4, "threads": 1, "backend": "gloo",
    "one_way": LINE, "both_ways": LINE, "reduction": LINE,
    "compute": [{"model": "resnet18", "dataset": "digits", "batch_size": 8, "processes": 1, "threads": 2, "spread": 0.1,
                 "phases": {"forward": 0.1, "backward": 0.2, "optimizer": 0.01}}],
    "message_classes": [{"pattern": "exchange", "width": 1, "reduces": True, "is_first": False, "in_training": False,
              "points": [[1024, 2e-5], [1048576, 1e-3]]}],
    "load": {"others": 0.1, "steal": 0.0, "names": ["make"]},
    "created": "2026-01-01T00:00:00+00:00", "environment": {"cpu": "some", "cores": 2},
}  # fmt: skip


def mutate_nccl_tests(draw: random.Random) -> bytes:
    text = NCCL
    for _ in range(draw.choice((1, 1, 2, 3))):
        text = text.replace(*draw.choice(NCCL_CHANGES), draw.choice((1, -1)))
    return mutate_text(text.encode(), draw) if draw.random() < 0.5 else text.encode()


NCCL = table([(1024, 20.0), (1 << 20, 60.0), (1 << 26, 900.0)])
NCCL_CHANGES = (
    ("1048576", "nan"), ("1048576", "-1"), ("1048576", "²"), ("1048576", "9" * 5000), ("float", "\x1b[31m"),
    ("sum", ""), ("\n", "\x00"), ("time", "tim"), ("#", ""), ("(us)", "(ms)"), ("A100", "B" * 100_000),
    ("nGpus 8", f"nGpus {10**30}"), ("Rank  1", "Rank  0"), ("all_reduce", "all"), ("20.00", "0.00"), ("20.00", "inf"),
)  # fmt: skip
EVENT = {"ph": "X", "pid": 1, "tid": 1, "ts": 10.0, "dur": 5.0}
PROFILE: Tree = {
    "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2},
    "traceEvents": [
        {**EVENT, "cat": "user_annotation", "name": "ProfilerStep#1", "dur": 40.0},
        {**EVENT, "cat": "cpu_op", "name": "aten::conv2d"},
        {**EVENT, "cat": "cpu_op", "name": "autograd::engine::evaluate_function: ConvBackward0", "ts": 20.0},
        {**EVENT, "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 26.0, "args": {"Collective name": "x"}},
        {**EVENT, "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "ts": 33.0},
    ],
}
LAYERS = json.loads((FilePath(simcomm.__file__).parents[1] / "collectives/model_profiles/resnet18.json").read_text())
MODEL: Tree = {
    **LAYERS,
    "layers": LAYERS["layers"][:6],
    "measured": [["cpu", 4, "float32", [0.1] * 6, [0.1] * 6, 0.1, 0.0, 1.3, "x", 1]],
}
OVERLAP: Tree = {
    "model": "resnet18", "dataset": "digits", "batch_size": 8, "processes": 4, "threads": 1,
    "gradients": [[1000, 0.5], [2000, 1.0]], "all_reduce": [[1024, 1e-4], [1048576, 1e-3]],
    "overlap_slowdown": 0.2, "copies_s": 0.001, "broadcast_s": 0.0,
}  # fmt: skip
OF_A_PAIR: Tree = {**CALIBRATION, "pair": asdict(PAIR), "overlap": [OVERLAP], "ranks": 2}
TRACE: Tree = simcomm.run("all_reduce/ring", simcomm.star(2, "10 Gbit/s", "5 us"), 64).to_dict()
