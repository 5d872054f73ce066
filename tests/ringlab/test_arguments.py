"""Every argument of a public function has an effect: another value changes the outcome or is rejected."""

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pasted_files
import pytest
import torch
import torch.distributed as dist
from command_line import Ringlab
from matplotlib.figure import Figure
from test_strategy_command import SCENARIO as SPREAD

import collectives
import realcomm
import replay
import ringlab
import simcomm
import viz
from collectives import CollectiveCall, InputError, Training, find_algorithm, recv, send
from collectives.declaration import nccl
from collectives.records.calibration import Calibration, FittedLine
from collectives.training.workload import ComputePhases
from collectives.transport import Transport
from realcomm.emulation.network import EmulatedNetwork
from realcomm.training.observing import Observer
from realcomm.watching.watch import Watch
from replay.recording_builder import RecordedCollective, RecordingBuilder
from ringlab.session import Session
from simcomm.sweeping import Sweep
from viz.accuracy import Dots
from viz.curves import Curve, SweepLine
from viz.fronts import MeshDots, Priced
from viz.report import ReportParts
from viz.rings import Rings
from viz.style import render_figure
from viz.waterfall import Bar

# mypy: allow-untyped-defs

PACKAGES = {
    "collectives": collectives,
    "simcomm": simcomm,
    "realcomm": realcomm,
    "replay": replay,
    "viz": viz,
    "ringlab": ringlab,
}
ELSEWHERE = {"accept_noise"}  # counts after measuring: tests/collectives/test_calibration_noise.py
STAR, HERE = simcomm.star(4, "10 Gbit/s", "5 us"), simcomm.this_machine(2)
RING, NAIVE = find_algorithm("all_reduce/ring"), find_algorithm("all_reduce/naive")
TRAINING = Training(RING, compute=ComputePhases(0.01, 0.02, 0.001))
TRACE, OTHER = simcomm.run(RING, STAR, 4096), simcomm.run(NAIVE, STAR, 4096)
SLOW = Transport("slow", overhead=1e-3, goodput=0.5, gamma=1e-9)
FAILS = simcomm.Faults(ranks=(simcomm.RankFault(1, fails_at=1e-6),))
LINK = {"bandwidth": "10 Gbit/s", "latency": "5 us"}
OTHER_LINK = {"bandwidth": "1 Gbit/s", "latency": "9 us", "transport": SLOW}
LINKS = [("h0", "s0", "1 Gbit/s", "1 us"), ("h1", "s0", "1 Gbit/s", "1 us")]
COLLECTIVE = '[cluster]\ntopology="star"\nhosts=4\nbandwidth="10 Gbit/s"\nlatency="5 us"\n[collective]\n'
COLLECTIVE += 'name="all_reduce"\nalgorithms=["ring", "naive"]\nsizes=["4 KiB", "64 KiB"]\n'
ON_HERE = '[cluster]\npreset="this-machine"\nworld_size=2\n[collective]\nname="all_reduce"\n'
ON_HERE += 'algorithms=["ring"]\nsizes=["4 KiB"]\n'
TRAINS = '[cluster]\npreset="this-machine"\nworld_size=2\n[training]\ngradient_sync=["ring"]\ncheckpoints="kept"\n'


def calibration(scale: float = 1.0) -> Calibration:
    line = FittedLine(1e-5 * scale, 1e-9 * scale, 0.0)
    return Calibration(2, 1, line, line, line)


def recording(seconds: float = 0.5):
    builder, both = RecordingBuilder("two.py", 2), RecordedCollective("all_reduce", (0, 1), elements=250_000)
    for rank in range(2):
        call = builder.collective(rank, 0, both)
        builder.post(rank, call, seconds=seconds * rank)
        builder.wait(rank, call)
    return builder.recording()


class Started(BaseException):
    """Raised instead of starting processes. The message describes them."""


class Odd:
    """A value that no argument accepts."""

    def __repr__(self) -> str:
        return "<odd>"


class Heard:
    """A progress report that stores everything it is called with."""

    def __init__(self) -> None:
        self.news: list[Any] = []

    def task(self, text: str, late_s: float = 0.0):
        return nullcontext(lambda *now: self.news.append(now))

    def note(self, text: str) -> None:
        self.news.append(text)

    def __call__(self, *now: object) -> None:
        self.news.append(now)


class Given(NamedTuple):
    """Another value of an argument, and other arguments that it needs to have an effect."""

    value: Any
    needs: Mapping[str, Any]


class Trial(NamedTuple):
    """A function, the arguments of a call, and another value of each argument."""

    function: Callable[..., Any]
    base: Callable[[], dict[str, Any]]
    others: Mapping[str, Any]
    flags: tuple[str, ...] = ()  # take any truth value, as torch's do


def cluster_trial(name: str, base: Mapping[str, Any], others: Mapping[str, Any]) -> Trial:
    links = {key: value for key, value in OTHER_LINK.items() if key in base or key == "transport"}
    return Trial(getattr(simcomm, name), lambda: dict(base), {**links, **others})


def tensor_trial(name: str, base: Callable[[], dict[str, Any]], **others: Any) -> Trial:
    common = {"group": Odd(), "async_op": True, "algorithm": "broadcast/ring"}
    known = inspect.signature(getattr(realcomm, name)).parameters
    others = {key: value for key, value in (common | others).items() if key in known}
    return Trial(getattr(realcomm, name), base, others, ("async_op",))


def ones(number: int = 2) -> torch.Tensor:
    return torch.ones(number)


def trials(folder: Path) -> dict[str, Trial]:
    """Return the trial of each public function."""
    files = _files(folder)
    return {
        **_of_collectives(files),
        **_of_simcomm(files),
        **_of_realcomm(folder),
        **_of_viz(folder),
        **_of_ringlab(folder, files),
    }


def _files(folder: Path) -> dict[str, Path]:
    texts = {"star": COLLECTIVE, "here": ON_HERE, "trains": TRAINS, "spread": SPREAD}
    paths = {name: folder / f"{name}.toml" for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text)
    for name, trace in (("one", TRACE), ("two", OTHER)):
        paths[name] = folder / f"{name}.trace.json"
        trace.write(paths[name])
    for name, scale in (("fast", 1.0), ("slow", 9.0)):
        paths[name] = folder / f"{name}.json"
        calibration(scale).write(paths[name])
    for name, seconds in (("quick", 0.5), ("late", 1.5)):
        paths[name] = folder / f"{name}.recording.json"
        recording(seconds).write(paths[name])
    for name, graph in (("graph", STAR.graph), ("triangle", simcomm.fully_connected(3, **LINK).graph)):
        paths[name] = folder / f"{name}.json"
        paths[name].write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    paths["program"] = folder / "mine.py"
    paths["program"].write_text(
        "from collectives import algorithm\n@algorithm('all_reduce', chunks=1)\ndef mine(rank, world_size): yield ()\n"
    )
    return paths


def _of_collectives(files: Mapping[str, Path]) -> dict[str, Trial]:
    message = {"peer": 2, "chunk": 1, "count": 3}
    local = {"chunk": 2, "into": 3, "count": 2}
    sized = {"algorithm": "all_reduce/naive", "world_size": 5}
    options = {"nbytes": "2 KiB", "dtype": "float64", "op": "max", "root": Given(1, {"algorithm": "reduce/naive"})}

    def declare(**arguments: Any) -> Any:
        declared = collectives.algorithm(**arguments)(lambda rank, world_size, root=0: iter(()))
        return declared, declared.chunks(4), declared.scratch(4)

    def group(**arguments: Any) -> Any:
        return list(collectives.on_group(**({"program": iter([send(1, 1), recv(0, 2)])} | arguments)))

    return {
        "collectives.algorithm": Trial(
            declare, lambda: {"collective": "all_reduce"},
            {"collective": "barrier", "name": "other", "chunks": 3, "scratch": 2},
        ),
        "collectives.build_schedule": Trial(
            collectives.build_schedule, lambda: {"algorithm": RING, "world_size": 4},
            {**sized, "root": Given(1, {"algorithm": "reduce/naive"})},
        ),
        "collectives.verify": Trial(
            collectives.verify, lambda: {"algorithm": RING, "world_size": 4},
            {**sized, "root": Given(1, {"algorithm": "reduce/naive"})},
        ),
        "collectives.find_algorithm": Trial(
            collectives.find_algorithm, lambda: {"reference": "all_reduce/ring"},
            {"reference": "all_reduce/naive", "collective": "broadcast",
             "folder": Given(files["program"].parent, {"reference": "mine.py"})},
        ),
        "collectives.make_call": Trial(
            collectives.make_call, lambda: {"algorithm": RING, "world_size": 4, "nbytes": 1000},
            {**options, "algorithm": "all_to_all/direct", "world_size": Given(7, {"algorithm": "all_to_all/direct"}),
             "buffers": Given([np.ones(3) for _ in range(4)], {"nbytes": None})},
        ),
        "collectives.on_group": Trial(
            group, lambda: {"ranks": [4, 6]},
            {"program": iter([send(0, 0)]), "ranks": [6, 4], "count": 2, "first_chunk": 1, "stride": 3},
        ),
        "collectives.parse_size": Trial(collectives.parse_size, lambda: {"text": "1 KiB"}, {"text": "2 KiB"}),
        "collectives.read_calibration": Trial(
            collectives.read_calibration, lambda: {"path": files["fast"]}, {"path": files["slow"]}
        ),
        "collectives.read_trace": Trial(collectives.read_trace, lambda: {"path": files["one"]}, {"path": files["two"]}),
        **{
            f"collectives.{name}": Trial(getattr(collectives, name), lambda: {"peer": 1, "chunk": 0}, message)
            for name in ("send", "recv", "recv_reduce")
        },
        **{
            f"collectives.{name}": Trial(getattr(collectives, name), lambda: {"chunk": 0, "into": 1}, local)
            for name in ("copy", "reduce")
        },
    }  # fmt: skip


def _of_simcomm(files: Mapping[str, Path]) -> dict[str, Trial]:
    rooted, here = {"algorithm": "reduce/naive"}, {"cluster": HERE}
    trials = {
        name: cluster_trial(name, base, others)
        for name, base, others in (
            ("dragonfly", {"hosts_per_router": 2, "routers_per_group": 2, "global_links": 1, **LINK},
             {"hosts_per_router": 1, "routers_per_group": 3, "global_links": 2, "groups": 2}),
            ("fat_tree", {"ports": 4, **LINK}, {"ports": 2}),
            ("from_graph", {"graph": STAR.graph}, {"graph": simcomm.ring(3, **LINK).graph, "title": "other"}),
            ("from_links", {"links": LINKS}, {"links": LINKS[:1], "title": "other", "world_size": 1}),
            ("fully_connected", {"hosts": 3, **LINK}, {"hosts": 4}),
            ("preset", {"name": "dgx-h100", "nodes": 2},
             {"name": "dgx-a100", "nodes": 3, "gpus_per_node": 4, "nodes_per_leaf": 1, "oversubscription": 2.0,
              "bandwidth": "1 Gbit/s", "latency": "9 us"}),
            ("read_cluster", {"path": files["graph"]}, {"path": files["triangle"]}),
            ("ring", {"hosts": 4, **LINK}, {"hosts": 5}),
            ("star", {"hosts": 4, **LINK}, {"hosts": 5}),
            ("torus", {"dimensions": [2, 2], **LINK}, {"dimensions": [2, 3]}),
            ("two_level_tree", {"racks": 2, "hosts_per_rack": 2, **LINK},
             {"racks": 3, "hosts_per_rack": 3, "oversubscription": 4}),
        )
    }  # fmt: skip
    routes = {"routes": [["h0", "h3", "h2", "h1"]]}
    on_ring = simcomm.ring(4, **LINK).graph

    def routed(policy: Callable[..., Any]) -> Callable[..., Any]:
        return lambda **arguments: [policy(**arguments)(on_ring).route("h0", host) for host in ("h1", "h2")]

    tree = simcomm.fat_tree(4, **LINK).graph
    plain = simcomm.from_links([*LINKS, ("h2", "s0", "1 Gbit/s", "1 us")])
    buffers = [np.full(4, float(rank)) for rank in range(4)]
    other = {"cluster": simcomm.star(3, **LINK), "calibration": Given(calibration(9.0), here)}
    rented = simcomm.preset("dgx-a100", 2)
    faulty = {"engine": "simpy", "faults": FAILS}
    return {
        **{f"simcomm.{name}": trial for name, trial in trials.items()},
        "simcomm.choose": Trial(
            simcomm.choose, lambda: {"collective": "all_reduce", "cluster": STAR, "nbytes": 1 << 20},
            {**other, "calibration": calibration(), "collective": "broadcast", "nbytes": "1 KiB", "dtype": "float63",
             "op": "xor", "root": 1, "among": ["naive"]},
        ),
        "simcomm.ecmp": Trial(
            lambda **arguments: [simcomm.ecmp(**arguments)(tree).route("h0", f"h{host}") for host in range(8, 16)],
            dict, {"seed": 5},
        ),
        "simcomm.listed_routes": Trial(
            routed(simcomm.listed_routes), lambda: dict(routes),
            {"routes": [["h0", "h3", "h2"]], "otherwise": simcomm.listed_routes([["h0", "h3", "h2"]])},
        ),
        "simcomm.place_in_blocks": Trial(
            simcomm.place_in_blocks, lambda: {"cluster": simcomm.place_round_robin(rented)}, {"cluster": STAR}
        ),
        "simcomm.place_round_robin": Trial(simcomm.place_round_robin, lambda: {"cluster": rented}, {"cluster": STAR}),
        "simcomm.place_on": Trial(
            simcomm.place_on, lambda: {"cluster": STAR, "hosts": ["h0", "h1"]},
            {"cluster": plain, "hosts": ["h1", "h0"]},
        ),
        "simcomm.rail_aware": Trial(
            lambda graph: simcomm.rail_aware(graph).route("n0.gpu0", "n1.gpu1"), lambda: {"graph": rented.graph},
            {"graph": simcomm.preset("dgx-h100", 2, 4).graph},
        ),
        "simcomm.shortest": Trial(
            lambda graph: simcomm.shortest(graph).route("h0", "h1"), lambda: {"graph": STAR.graph}, {"graph": on_ring}
        ),
        "replay.read_recording": Trial(
            replay.read_recording, lambda: {"path": files["quick"]}, {"path": files["late"]}
        ),
        "replay.replay": Trial(
            replay.replay, lambda: {"recording": recording(), "cluster": simcomm.star(2, **LINK)},
            {"recording": recording(0.25), "cluster": simcomm.star(2, "1 Gbit/s", "5 us"),
             "algorithms": {"all_reduce": "unchunked_ring"},
             "calibration": Given(calibration(9.0), here), "faults": FAILS},
        ),
        "simcomm.run": Trial(
            simcomm.run, lambda: {"algorithm": RING, "cluster": STAR, "nbytes": 4100},
            {**other, "algorithm": NAIVE, "nbytes": "1 MiB", "dtype": "float64", "op": "xor", "root": Given(1, rooted),
             "buffers": Given(buffers, {"nbytes": None}), "faults": FAILS, "engine": "approximate",
             "record": Given(False, {"cluster": simcomm.star(8, **LINK), "engine": "compiled"})},
        ),
        "simcomm.sweep": Trial(
            simcomm.sweep, lambda: {"algorithms": RING, "clusters": STAR, "sizes": [1024]},
            {"algorithms": NAIVE, "clusters": [simcomm.star(3, **LINK)], "sizes": ["1 MiB"], "dtype": "float63",
             "op": "xor", "root": 1, "calibration": calibration(), "faults": FAILS,
             "progress": Heard()},
        ),
        "simcomm.this_machine": Trial(simcomm.this_machine, lambda: {"ranks": 2}, {"ranks": 3}),
        "simcomm.train": Trial(
            simcomm.train, lambda: {"training": TRAINING, "cluster": STAR, "steps": 1},
            {**other, "training": Training(NAIVE, compute=TRAINING.compute), "steps": 2, **faulty,
             "record": Given(False, {"cluster": simcomm.star(8, **LINK), "engine": "compiled"}),
             "engine": "approximate"},
        ),
        "simcomm.with_usable_bandwidths": Trial(
            simcomm.with_usable_bandwidths, lambda: {"cluster": STAR}, {"cluster": plain}
        ),
    }  # fmt: skip


def _of_realcomm(folder: Path) -> dict[str, Trial]:
    launched = {"backend": "nccl", "timeout": 9.0, "progress": Heard(), "network": Odd()}
    run = {"algorithm": NAIVE, "cluster": simcomm.this_machine(1), "nbytes": "1 MiB", "dtype": "float64", "op": "max"}
    run |= {"root": Given(1, {"algorithm": "reduce/naive"}), "warmup": 1, "repetitions": 3, **launched}
    root = {"src": 5, "dst": 5, "group_src": 5, "group_dst": 5, "op": "xor"}
    odd = torch.ones(3, dtype=torch.int32)
    both = lambda: {"output": ones(), "input": ones()}  # noqa: E731
    return {
        "realcomm.run": Trial(
            realcomm.run, lambda: {"algorithm": RING, "cluster": HERE, "nbytes": 4098},
            {**run, "buffers": Given([np.ones(3), np.ones(3)], {"nbytes": None})},
        ),
        "realcomm.train": Trial(
            realcomm.train, lambda: {"training": TRAINING, "cluster": HERE, "steps": 1},
            {"training": Training(NAIVE), "cluster": simcomm.this_machine(1), "steps": 2, **launched,
             "weights_file": folder / "weights.pt", "observers": [Observer()], "resume": "auto"},
        ),
        "realcomm.calibrate": Trial(
            realcomm.calibrate, lambda: {"ranks": 2},
            {"ranks": 1, "trainings": [TRAINING], "calls": [CollectiveCall(RING, 999)], "backend": "nccl",
             "all_sizes": False, "timeout": 9.0, "progress": Heard()},
            ("all_sizes",),
        ),
        "realcomm.launch": Trial(
            realcomm.launch, lambda: {"worker": max, "world_size": 2},
            {"worker": min, "world_size": 3, "args": (1,), "threads": 2, "renews": True, **launched},
            ("args", "renews"),
        ),
        "realcomm.emulate": Trial(realcomm.emulate, lambda: {"cluster": STAR}, {"cluster": HERE}),
        "realcomm.set_status": Trial(realcomm.set_status, lambda: {"text": "reading"}, {"text": None}),
        "realcomm.report_progress": Trial(
            realcomm.report_progress, lambda: {"done": 1, "total": 2, "text": "images"},
            {"done": -1, "total": 0.5, "text": None},
        ),
        "realcomm.execute": Trial(
            realcomm.execute, lambda: {"algorithm": RING, "tensor": ones()},
            {"algorithm": "ring", "tensor": odd[::2], "op": "xor", "root": 1, "group": Odd(), "record": ()},
        ),
        "realcomm.all_reduce": tensor_trial("all_reduce", lambda: {"tensor": ones()}, tensor=odd.numpy(), **root),
        "realcomm.broadcast": tensor_trial("broadcast", lambda: {"tensor": ones()}, tensor=odd.numpy(), **root),
        "realcomm.reduce": tensor_trial("reduce", lambda: {"tensor": ones()}, tensor=odd.numpy(), **root),
        "realcomm.all_gather_into_tensor": tensor_trial(
            "all_gather_into_tensor", lambda: {"output_tensor": ones(), "input_tensor": ones()},
            output_tensor=odd, input_tensor=odd,
        ),
        "realcomm.reduce_scatter_tensor": tensor_trial(
            "reduce_scatter_tensor", both, output=odd, input=odd, **root
        ),
        "realcomm.all_to_all_single": tensor_trial(
            "all_to_all_single", both, output=odd, input=odd, output_split_sizes=[1], input_split_sizes=[1]
        ),
        "realcomm.barrier": tensor_trial("barrier", dict),
        "realcomm.all_gather": tensor_trial(
            "all_gather", lambda: {"tensor_list": [ones()], "tensor": ones()}, tensor_list=[odd], tensor=odd
        ),
        "realcomm.reduce_scatter": tensor_trial(
            "reduce_scatter", lambda: {"output": ones(), "input_list": [ones()]}, output=odd, input_list=[odd], **root
        ),
        "realcomm.all_to_all": tensor_trial(
            "all_to_all", lambda: {"output_tensor_list": [ones()], "input_tensor_list": [ones()]},
            output_tensor_list=[odd], input_tensor_list=[odd],
        ),
        "realcomm.gather": tensor_trial(
            "gather", lambda: {"tensor": ones(), "gather_list": [ones()]}, tensor=odd, gather_list=[odd], **root
        ),
        "realcomm.scatter": tensor_trial(
            "scatter", lambda: {"tensor": ones(), "scatter_list": [ones()]}, tensor=odd, scatter_list=[odd], **root
        ),
    }  # fmt: skip


def _of_viz(folder: Path) -> dict[str, Trial]:
    titled = {"title": "first", "subtitle": "second"}
    retitled = {"title": "third", "subtitle": "fourth"}
    point = (1.0, 2.0, 3.0)
    mesh = MeshDots("job", [1.0, 2.0], [3.0, 4.0], ["a", "b"], ["x", "y"], [1], 80.0)
    two = TRACE, OTHER
    answers = [ringlab.predict(name).to_dict() for name in ("star8", "two-racks")]
    drawn: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
        "accuracy_figure": (viz.accuracy_figure, {**titled, "dots": [Dots("p", "f", [1.0], [2.0])]},
                            {**retitled, "dots": [Dots("p", "f", [1.0], [9.0])]}),
        "scaling_figure": (viz.scaling_figure, {**titled, "curves": [Curve("a", [1, 2], [1.0, 2.0], [1.0, 1.0])]},
                           {**retitled, "curves": [Curve("a", [1, 2], [1.0, 1.5], [1.0, 0.75])]}),
        "sweep_figure": (viz.sweep_figure, {"title": "t", "key": "k", "lines": [SweepLine("a", ["1"], [1.0])]},
                         {"title": "u", "key": "l", "lines": [SweepLine("b", ["1"], [1.0])]}),
        "waterfall_figure": (viz.waterfall_figure, {**titled, "bars": [Bar("g", "n", {"forward": 1.0}, 1.0)]},
                             {**retitled, "bars": [Bar("g", "m", {"forward": 1.0}, 1.0)]}),
        "money_figure": (viz.money_figure,
                         {**titled, "candidates": [Priced("a", "k", point, point)], "limits": (9.0, 9.0)},
                         {**retitled, "candidates": [Priced("b", "k", point, point)], "limits": (2.5, 2.5)}),
        "meshes_figure": (viz.meshes_figure, {"title": "t", "jobs": [mesh]},
                          {"title": "u", "jobs": [replace(mesh, title="other")]}),
        "rings_figure": (viz.rings_figure, {"rings": Rings("t", 2, [[0, 1, 2, 3]])},
                         {"rings": Rings("t", 2, [[0, 2, 1, 3]])}),
        "path_figure": (viz.path_figure, {"trace": TRACE}, {"trace": OTHER}),
        "space_time_figure": (viz.space_time_figure, {"trace": TRACE}, {"trace": OTHER}),
        "topology_figure": (viz.topology_figure, {"graph": STAR.graph, "hosts": STAR.hosts, "title": "t"},
                            {"graph": simcomm.ring(4, **LINK).graph, "hosts": STAR.hosts[:2], "title": "u"}),
        "check_file": (viz.check_file, {"path": folder / "a.gif", "what": "an animation"},
                       {"path": folder / "b.gif", "what": "a player"}),
        "write_figure": (viz.write_figure, {"figure": viz.space_time_figure(TRACE), "path": folder / "w.png"},
                         {"figure": viz.space_time_figure(OTHER), "path": folder / "w.svg"}),
        "draw": (viz.draw, {"trace": TRACE, "path": folder / "d.png"}, {"trace": OTHER, "path": folder / "d.svg"}),
        "animate": (viz.animate, {"trace": TRACE, "path": folder / "a.gif", "seconds": 0.5, "fps": 4},
                    {"trace": OTHER, "path": folder / "b.gif", "seconds": 1, "fps": 8, "progress": Heard()}),
        "write_perfetto": (viz.write_perfetto, {"traces": TRACE, "path": folder / "a.perfetto.json"},
                           {"traces": OTHER, "path": folder / "b.perfetto.json"}),
        "write_report": (viz.write_report, {"answer": answers[0], "parts": ReportParts(), "path": folder / "a.html"},
                         {"answer": answers[1], "parts": ReportParts(headline="b"), "path": folder / "b.html"}),
        "write_player": (viz.write_player,
                         {"title": "t", "runs": [viz.PlayedRun(two[0], "ring")], "path": folder / "p.html"},
                         {"title": "u", "runs": [viz.PlayedRun(two[1], "ring")], "path": folder / "q.html",
                          "teaches": True}),
    }  # fmt: skip
    return {
        f"viz.{name}": Trial(call, lambda base=base: dict(base), others) for name, (call, base, others) in drawn.items()
    }


def _of_ringlab(folder: Path, files: Mapping[str, Path]) -> dict[str, Trial]:
    star, here, trains = (ringlab.load(files[name]) for name in ("star", "here", "trains"))
    other = ringlab.load("star8", "collective.sizes=1 KiB")
    on_here = {"scenario": here}
    pictures = {"algorithm": RING, "size": "4 KiB", "progress": Heard()}
    measured = {"backend": "nccl", "timeout": 9.0, "progress": Heard()}
    known = {"calibration": Given(calibration(9.0), on_here)}
    predicted = {"engine": "approximate", "progress": Heard()}
    run = {
        **measured, "calibration": Given(calibration(), on_here), "emulate": True,
        "resume": Given("lost.pt", {"scenario": trains}), "watch": Given(Watch(folder / "logs"), {"scenario": trains}),
    }  # fmt: skip
    gpt, changed = "examples/gpt2_xl.toml", ("training.batch_size=2",)
    pasted = [
        pasted_files.write(folder, "topo.txt", pasted_files.workstation_matrix()),
        pasted_files.write(folder, "gpus.txt", pasted_files.gpus_listed("NVIDIA GeForce RTX 4090", 4)),
    ]
    tables = [
        pasted_files.write(
            folder, f"{rate}.txt", pasted_files.nccl_tests(["n0"], 2, "NVIDIA A100-SXM4-80GB", [(2**28, rate)])
        )
        for rate in (9.0, 99.0)
    ]
    plan = {"scenario": "quickstart", "overrides": ("training.model='resnet50'", "plan.known_rates={'V100' = 400.0}")}
    options = {"session": Session(timeout_s=9.0), "check_all": True, "weights": folder / "weights.pt"}
    trials = {
        "animate": Trial(
            ringlab.animate, lambda: {"source": star, "path": folder / "c.png"},
            {"source": other, "path": folder / "c.svg", **pictures, "calibration": calibration()},
        ),
        "bench": Trial(
            ringlab.bench, dict,
            {"options": ringlab.BenchOptions(end="4K"), "backend": "nccl", "timeout": 9.0, "emulated": here},
        ),
        "calibrate": Trial(
            ringlab.calibrate, lambda: {"ranks": 2},
            {"ranks": 1, "trainings": [TRAINING], "calls": [CollectiveCall(RING, 999)], **measured,
             "accept_noise": True},
            ("accept_noise",),
        ),
        "check": Trial(
            ringlab.check, lambda: {"algorithms": RING, "world_sizes": [2]},
            {"algorithms": NAIVE, "world_sizes": "2-3", "progress": Heard()},
        ),
        "compare": Trial(
            ringlab.compare, lambda: dict(on_here),
            {"scenario": trains, "calibration": calibration(), **measured, "emulate": True, "thorough": True},
            ("emulate", "thorough"),
        ),
        "compare_strategy": Trial(
            ringlab.compare_strategy, lambda: {"scenario": files["spread"]},
            {"scenario": files["star"], "overrides": ("training.batch_size=8",), **options}, ("check_all",),
        ),
        "run_strategy": Trial(
            ringlab.run_strategy, lambda: {"scenario": files["spread"]},
            {"scenario": files["star"], "overrides": ("training.batch_size=8",), **options}, ("check_all",),
        ),
        "describe": Trial(
            ringlab.describe, lambda: {"files": pasted},
            {"files": pasted[1:], "system": "dgx-h100", "keys": ["nodes=2"]},
        ),
        "doctor": Trial(ringlab.doctor, dict, {"progress": Heard()}),
        "explain": Trial(
            ringlab.explain, lambda: {"scenario": "two-p5"},
            {"scenario": star, "path": folder / "rings.png", "progress": Heard()},
        ),
        "explain_measured": Trial(
            ringlab.explain_measured, lambda: {"file": tables[0]},
            {"file": tables[1], "scenario": ringlab.load("dgx-h100"), "keys": ["gpu=H100 SXM"]},
        ),
        "hardware": Trial(ringlab.hardware, dict, {"name": "dgx-h100"}),
        "init": Trial(
            ringlab.init, lambda: {"name": "star8", "output": folder / "mine" / "first.toml"},
            {"name": "two-p5", "output": folder / "mine" / "second.toml"},
        ),
        "list_names": Trial(ringlab.list_names, dict, {"kind": "models"}),
        "load": Trial(
            ringlab.load, lambda: {"reference": files["star"]},
            {"reference": files["here"], "changes": ("collective.sizes=1 KiB",)},
        ),
        "plan": Trial(
            ringlab.plan, lambda: {**plan, "target_samples": 1e8},
            {"scenario": "star8", "overrides": (), "progress": Heard(), "today": date(2020, 1, 1),
             "fields": Given({"budget": 1.0}, {})},
        ),
        "plot": Trial(
            ringlab.plot, lambda: {"kind": "path", "source": star, "path": folder / "d.png"},
            {"kind": "cluster", "source": other, "path": folder / "d.svg", **pictures, "calibration": calibration()},
        ),
        "predict": Trial(ringlab.predict, lambda: {"scenario": star}, {"scenario": other, **known, **predicted}),
        "predict_devices": Trial(
            ringlab.predict_devices, lambda: {"scenario": gpt, "devices": [8]},
            {"scenario": "examples/llama2_70b.toml", "devices": [16], "overrides": changed, "what_if": "batch=2,4",
             "tick": Heard()},
        ),
        "predict_sweep": Trial(
            ringlab.predict_sweep, lambda: {"scenario": files["star"], "sweep": "cluster.hosts=2,4"},
            {"scenario": "star8", "sweep": "cluster.hosts=2,3", "overrides": ("collective.sizes=1 MiB",),
             "calibration": calibration(), **predicted},
        ),
        "profile_model": Trial(
            ringlab.profile_model, lambda: {"model": "resnet50"},
            {"model": "resnet18", "timing": Given({"batch_size": -1}, {})},
        ),
        "run": Trial(ringlab.run, lambda: dict(on_here), {"scenario": trains, **run}, ("emulate",)),
    }  # fmt: skip
    methods = {
        "trace": (star, {**pictures, "calibration": calibration(), "engine": "approximate"}),
        "write_report": (star, {"answer": star.predict(engine="compiled"), "path": folder / "s.html",
                                "calibration": calibration(), "backend": "mpi", "progress": Heard()}),
        "calibrate": (here, {**measured, "ranks": 3, "accept_noise": True}),
    }  # fmt: skip
    report = {"answer": star.predict(), "path": folder / "r.html"}
    of_methods = {}
    for name, (scenario, others) in methods.items():
        method, base = getattr(scenario, name), report if name == "write_report" else {}
        known = {key: value for key, value in others.items() if key in inspect.signature(method).parameters}
        of_methods[f"Scenario.{name}"] = Trial(method, lambda base=base: dict(base), known, ("accept_noise",))
    (folder / "mine").mkdir(exist_ok=True)
    return {**{f"ringlab.{name}": trial for name, trial in trials.items()}, **of_methods}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trial]]:
    """Return the trials, in a process that is the only rank of a group and starts no processes."""
    folder = tmp_path_factory.mktemp("arguments")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr("realcomm.emulation.network.EmulatedNetwork.__enter__", _build)
        patch.setattr("realcomm.emulation.network.under_torchrun", lambda: False)
        patch.setattr("realcomm.launching.launcher.under_torchrun", lambda: False)
        patch.setattr("realcomm.launching.launcher.start_server", lambda: None)
        patch.setattr("realcomm.launching.launcher._Processes", _Processes)
        yield trials(folder)
    dist.destroy_process_group()


def _build(network: EmulatedNetwork) -> None:
    raise Started(f"a network of {network.plan}")


class _Processes:
    """Raises ``Started`` with a description of the processes that a launch would start."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.given = arguments[:3], arguments[4:]  # without the interrupts

    def start(self, payload: bytes, *arguments: object) -> None:
        raise Started(_digest((self.given, payload, arguments)))

    def end(self) -> None:
        """Do nothing."""


def _digest(value: object) -> str:
    """Return everything that a caller sees of a value, as text."""
    if isinstance(value, simcomm.Cluster):
        graph = [*value.graph.nodes(data=True)], [*value.graph.edges(data=True)]
        return str([graph, value.title, value.hosts, value.sharing, value.transport, value.routing])
    if isinstance(value, Figure):
        return hashlib.sha256(render_figure(value)).hexdigest()
    if isinstance(value, Path):
        return f"{value} {hashlib.sha256(value.read_bytes()).hexdigest() if value.is_file() else ''}"
    if isinstance(value, torch.Tensor | np.ndarray):
        return str(value.tolist())
    if isinstance(value, Heard):
        return f"heard {bool(value.news)}"
    if isinstance(value, Sweep):
        return str([*value.rows()])
    if isinstance(value, ringlab.Scenario):
        return str([_digest(getattr(value, field.name)) for field in fields(value)])
    if hasattr(value, "to_dict") and not isinstance(value, type):
        answer, shown = value.to_dict(), [*value.show()] if hasattr(value, "show") else []
        content = {key: item for key, item in answer.items() if key != "environment"}
        return json.dumps([content, list(map(str, shown))], default=str)
    if isinstance(value, Mapping):
        return str({key: _digest(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return str([_digest(item) for item in value])
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """Return the result and the written files of a call, the processes that it would start, or its error."""
    first, several, named = list[Any](), list[Any](), dict(arguments)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in named and parameter.kind is parameter.VAR_POSITIONAL:
            several = [*named.pop(name)]
        if name in named and parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(name)
    if several:  # what stands before them is given by position
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name in named:
                first.append(named.pop(name))
    try:
        result = f"returned {_digest(function(*first, *several, **named))}"
    except InputError as error:
        return f"rejected {error}"
    except Started as started:
        result = f"started {started}"
    kinds = Path | Heard | np.ndarray | torch.Tensor | list
    return f"{result} {_digest([argument for argument in arguments.values() if isinstance(argument, kinds)])}"


def _of(table: Mapping[str, Trial], package: str) -> dict[str, Trial]:
    return {name: trial for name, trial in table.items() if name.partition(".")[0] == package}


EVERY = [*PACKAGES, "Scenario"]


@pytest.mark.parametrize("package", EVERY)
def test_every_argument_of_a_public_function_has_a_trial(package: str, table: dict[str, Trial]) -> None:
    module = ringlab.Scenario if package == "Scenario" else PACKAGES[package]
    public = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    functions = {name: function for name, function in public.items() if inspect.isfunction(function)}
    if package == "Scenario":  # its other methods are functions of ringlab
        functions = {
            name: function for name, function in functions.items() if getattr(ringlab, name, None) is not function
        }
    wanted = {
        f"{package}.{name}": {*inspect.signature(function).parameters} - {"self"}
        for name, function in functions.items()
    }
    assert {name: {*trial.others} for name, trial in _of(table, package).items()} == wanted


@pytest.mark.parametrize("package", [*EVERY[:-2], pytest.param("ringlab", marks=pytest.mark.slow), "Scenario"])
def test_argument_value_changes_the_outcome_or_is_rejected(package: str, table: dict[str, Trial]) -> None:
    ignored = []
    for name, trial in _of(table, package).items():
        usual = _outcome(trial.function, trial.base())
        for argument, other in trial.others.items():
            if argument in ELSEWHERE:
                continue
            value, needs = other if isinstance(other, Given) else (other, {})
            plain = _outcome(trial.function, {**trial.base(), **needs}) if needs else usual
            if plain == _outcome(trial.function, {**trial.base(), **needs, argument: value}):
                ignored.append(f"{name}({argument}): {plain[:200]}")
    assert not ignored, "\n".join(ignored)


@pytest.mark.parametrize("package", EVERY)
def test_every_argument_rejects_invalid_values(package: str, table: dict[str, Trial]) -> None:
    accepted = []
    for name, trial in _of(table, package).items():
        for argument in trial.others:
            parameter = inspect.signature(trial.function).parameters.get(argument)
            if argument in trial.flags or (parameter and parameter.kind is parameter.VAR_KEYWORD):
                continue
            value: object = (Odd(),) if parameter and parameter.kind is parameter.VAR_POSITIONAL else Odd()
            try:
                outcome = _outcome(trial.function, {**trial.base(), argument: value})
            except Exception as error:  # a figure may fail in any way
                outcome = "rejected" if package == "viz" else f"{type(error).__name__}: {error}"
            if not outcome.startswith("rejected"):
                accepted.append(f"{name}({argument}): {outcome[:200]}")
    assert not accepted, "\n".join(accepted)


def on_star(*changes: str) -> ringlab.Scenario:
    return ringlab.load("star8", *changes)


UNUSED: dict[str, Callable[[], Any]] = {  # an argument that a call does not depend on, by what is said of it
    "the plot 'cluster' has no algorithm; remove algorithm and size": lambda: on_star().plot(
        "cluster", "x.png", "ring", "1 KiB"
    ),
    "the plot 'step' has no algorithm; remove size": lambda: on_star().plot("step", "x.png", size="1 KiB"),
    "x.trace.json: a trace has only one run; remove algorithm": lambda: ringlab.animate(
        "x.trace.json", "x.png", "ring"
    ),
    "x.trace.json: a trace has only one run; remove size and calibration": lambda: ringlab.plot(
        "x.trace.json", "path", "x.png", size=64, calibration="x.json"
    ),
    "size requires a [collective] table; remove size": lambda: ringlab.load("resnet34-cifar10").trace(size="1 KiB"),
    "calibration is not used, because all costs are described; remove it": lambda: on_star().predict(calibration()),
    "star of 4 hosts, 10 Gbit/s describes its own costs, so a calibration has no effect on it": lambda: simcomm.run(
        RING, STAR, 64, calibration=calibration()
    ),
    "calibration is only used to resolve auto; remove it": lambda: on_star().run(calibration=calibration()),
    "no [training] table; remove resume": lambda: ringlab.load("two-racks").run(resume="auto"),
    "no [training] table; remove watch": lambda: ringlab.load("two-racks").run(watch=Watch(Path("logs"))),
    "all_reduce/nccl is predicted by formula, without messages; remove engine": lambda: _on_nccl(engine="simpy"),
    "all_reduce/nccl is predicted by formula, without messages; remove faults": lambda: _on_nccl(faults=FAILS),
    "all_reduce/nccl is predicted by formula, without messages; remove buffers": lambda: _on_nccl(
        None, buffers=[np.ones(2, np.float32) for _ in range(16)]
    ),
    "two-p5.toml: engine is not used, as no messages are simulated; remove it": lambda: ringlab.predict(
        ringlab.load("two-p5", "collective.algorithms=['nccl']"), engine="simpy"
    ),
    "star8.toml has 8; remove ranks": lambda: ringlab.bench(ringlab.BenchOptions(ranks=3), emulated=on_star()),
    "ranks is 3, but its cluster has 2; remove ranks": lambda: ringlab.load("quickstart").calibrate(3),
    "all_reduce does not have a root; remove root": lambda: collectives.verify(RING, 4, root=1),
    "broadcast does not reduce; remove op": lambda: simcomm.sweep("broadcast/naive", STAR, [64], op="max"),
}


def _on_nccl(nbytes: int | None = 1024, **arguments: Any) -> Any:
    return simcomm.run(nccl("all_reduce"), ringlab.load("two-p5").cluster, nbytes, **arguments)


@pytest.mark.parametrize("message", UNUSED)
def test_unused_argument_is_rejected(message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("realcomm.launching.launcher._Processes", _Processes)
    TRACE.write("x.trace.json")
    calibration().write("x.json")
    with pytest.raises(InputError, match=re.escape(message)):
        UNUSED[message]()
    assert {path.name for path in tmp_path.iterdir()} == {"x.trace.json", "x.json"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["animate", "x.trace.json", "--algorithm", "ring", "-o", "x.png"],
        ["animate", "x.trace.json", "--size", "1 KiB", "-o", "x.html"],
        ["plot", "path", "x.trace.json", "--set", "cluster.hosts=4", "-o", "x.png"],
        ["plot", "cluster", "star8", "--algorithm", "ring", "-o", "x.png"],
        ["predict", "star8", "--calibration", "x.json"],
        ["bench", "--collective", "broadcast", "--op", "max"],
        ["bench", "--collective", "all_reduce", "--root", "1"],
    ],
)
def test_unused_option_is_rejected(
    arguments: list[str], ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    TRACE.write("x.trace.json")
    calibration().write("x.json")
    done = ringlab(*arguments)
    assert done.status == 2 and "remove" in done.err, done.err
    assert not Path("x.png").exists() and not Path("x.html").exists()
