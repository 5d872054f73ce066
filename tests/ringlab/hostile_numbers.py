"""Hostile cases of records of measured numbers: packed columns, probes of hosts, models' profiles."""

import base64
import json
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

import hostile_files as files
import hostile_plans as plans
from hostile_files import Tree
from hostile_runs import Case
from pair_probes import PAIR

import simcomm

ROWS = 50 * 49  # more than are written as plain lists
PACKED_TRACE: Tree = simcomm.run("all_to_all/direct", simcomm.star(50, "10 Gbit/s", "5 us"), 1 << 14).to_dict()
EMULATED = (Path(__file__).parents[2] / "scenarios" / "emulated" / "star4.toml").read_bytes()
ONE_ROW = ("--set", 'collective.algorithms=["ring"]', "--set", 'collective.sizes=["4 KiB"]')
LAYERS = json.loads((Path(simcomm.__file__).parent.parent / "collectives/model_profiles/resnet18.json").read_text())
MODEL: Tree = {
    **LAYERS,
    "layers": LAYERS["layers"][:6],
    "measured": [["cpu", 4, "float32", [0.1] * 6, [0.1] * 6, 0.1, 0.0, 1.3, "x", 1]],
}
OVERLAP: Tree = {
    "model": "resnet18",
    "dataset": "digits",
    "batch_size": 8,
    "processes": 4,
    "threads": 1,
    "gradients": [[1000, 0.5], [2000, 1.0]],
    "all_reduce": [[1024, 1e-4], [1048576, 1e-3]],
    "overlap_slowdown": 0.2,
    "copies_s": 0.001,
    "broadcast_s": 0.0,
}


def systematic_numbers() -> Iterator[Case]:
    """Yield the cases that are not drawn."""
    yield from _packed_columns()


@cache
def _pack(byte: bytes, count: int) -> str:
    return base64.b64encode(zlib.compress(byte * count)).decode()


COLUMNS: dict[str, Callable[[Tree], Tree]] = {
    "of zeros": lambda _: {"type": "u1", "deflated": _pack(b"\0", ROWS)},
    "of large numbers": lambda _: {"type": "u8", "deflated": _pack(b"\x7f", ROWS * 8)},
    "of negative ones": lambda _: {"type": "u8", "deflated": _pack(b"\xff", ROWS * 8)},
    "of nan": lambda _: {"type": "f8", "deflated": _pack(b"\xff", ROWS * 8)},
    "of large floats": lambda _: {"type": "f8", "deflated": _pack(b"\x7f", ROWS * 8)},
    "that is a bomb": lambda _: {"type": "u1", "deflated": _pack(b"\0", 1 << 26)},
    "of no text": lambda before: {**before, "deflated": 7},
    "cut": lambda before: {**before, "deflated": str(before.get("deflated"))[:-8]},
    "of one number": lambda _: {"all": 10**30},
    "of one nan": lambda _: {"all": float("nan")},
    "of one huge": lambda _: {"all": 1e308},
    "of one list": lambda _: {"all": [1]},
    "of objects": lambda _: {"type": "O", "deflated": ""},
    "too short": lambda _: [0] * (ROWS - 1),
    "of odd truth": lambda _: {"type": "b1", "deflated": _pack(b"\x02", ROWS)},
}


def _packed_columns() -> Iterator[Case]:
    whole = json.loads(json.dumps(PACKED_TRACE))
    columns = [name for name, held in whole["messages"]["columns"].items() if isinstance(held, dict)]
    for number, name in enumerate(columns):
        for shift, (kind, make) in enumerate(COLUMNS.items()):
            held = {**whole["messages"]["columns"], name: make(whole["messages"]["columns"][name])}
            content = json.dumps({**whole, "messages": {**whole["messages"], "columns": held}}).encode()
            picture = ("a.png", "a.html")[(number + shift) % 2]
            words = ("animate", "a.json", "-o", picture)
            yield Case(f"packed {name} {kind}", words, (("a.json", content),), (picture,))


def draw_pair(draw: random.Random, name: str) -> Case:
    """Return a case with a calibration of two hosts, or of what overlaps, in which something is wrong."""
    tree = json.loads(json.dumps({**files.CALIBRATION, "pair": asdict(PAIR), "overlap": [OVERLAP], "ranks": 2}))
    key = draw.choice(("pair", "pair", "overlap", "compute"))
    tree[key] = files.mutate(tree[key], draw)
    words = ("predict", "a.toml", "--calibration", "c.json", *ONE_ROW)
    if key != "pair":
        tree["ranks"], tree["pair"], words = 4, None, words[:4]
    given = {name: held for name, held in files.SCENARIOS["training"]["training"].items() if name != "compute"}
    here = files.toml({"cluster": {"preset": "this-machine", "world_size": 4}, "training": given})
    scenario = EMULATED if key == "pair" else here
    return Case(f"{name} {key}", words, (("a.toml", scenario), ("c.json", files.as_json(tree))))


def draw_model_profile(draw: random.Random, name: str) -> Case:
    """Return a case with a profile of a model in which something is wrong."""
    there = (("a.toml", files.toml(plans.SPREAD)), ("m.json", files.as_json(files.mutate(MODEL, draw))))
    words = ("predict", "a.toml", "--devices", "1,8", "--set", 'training.compute={profile="m.json"}')
    return Case(f"{name} model", words, there)
