"""Every argument of a public function is checked, and an argument that has no effect is rejected."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nccl_tests_output
import networkx as nx
import numpy as np
import pasted_files
import pytest
import torch
import torch.distributed as dist
from test_strategy_command import SCENARIO as SPREAD

import collectives
import realcomm
import replay
import ringlab
import simcomm
from collectives import InputError, Training, find_algorithm, recv, send
from collectives.declaration import nccl
from collectives.records.calibration import Calibration, FittedLine
from collectives.training.workload import ComputePhases
from realcomm.watching.watch import Watch
from replay.recording_builder import RecordedCollective, RecordingBuilder

# mypy: allow-untyped-defs

PACKAGES = {package.__name__: package for package in (collectives, simcomm, realcomm, replay, ringlab)}
FLAGS = {"async_op", "all_sizes", "renews", "accept_noise", "emulate", "thorough", "args"}  # any value
LINK = {"bandwidth": "10 Gbit/s", "latency": "5 us"}
STAR, HERE = simcomm.star(4, **LINK), simcomm.this_machine(2)
RING = find_algorithm("all_reduce/ring")
TRAINING = Training(RING, compute=ComputePhases(0.01, 0.02, 0.001))
TRACE = simcomm.run(RING, STAR, 4096)
FAILS = simcomm.Faults(ranks=(simcomm.RankFault(1, fails_at=1e-6),))
LINKS = [("h0", "s0", "1 Gbit/s", "1 us"), ("h1", "s0", "1 Gbit/s", "1 us")]
ON_HERE = '[cluster]\npreset="this-machine"\nworld_size=2\n[collective]\nname="all_reduce"\n'
ON_HERE += 'algorithms=["ring"]\nsizes=["4 KiB"]\n'


def calibration() -> Calibration:
    line = FittedLine(1e-5, 1e-9, 0.0)
    return Calibration(2, 1, line, line, line)


def recording():
    builder, both = RecordingBuilder("two.py", 2), RecordedCollective("all_reduce", (0, 1), elements=250_000)
    for rank in range(2):
        call = builder.collective(rank, 0, both)
        builder.post(rank, call, seconds=0.5 * rank)
        builder.wait(rank, call)
    return builder.recording()


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


class Started(BaseException):
    """Raised instead of starting processes."""


def refuse_to_start(*arguments: object, **options: object) -> None:
    raise Started


APPLIED: dict[str, Callable[..., Any]] = {  # functions whose result checks the arguments
    "collectives.algorithm": lambda **arguments: (
        (made := collectives.algorithm(**arguments)(lambda rank, world_size: iter(()))).chunks(4),
        made.scratch(4),
    ),
    "collectives.on_group": lambda **arguments: [*collectives.on_group(**arguments)],
    "simcomm.ecmp": lambda **arguments: simcomm.ecmp(**arguments)(STAR.graph),
}


def usual(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the arguments of a valid call of each public function, by package."""
    return {
        "collectives": _of_collectives(folder),
        "simcomm": _of_simcomm(folder),
        "realcomm": _of_realcomm(),
        "replay": {
            "read_recording": {"path": folder / "recording.json"},
            "replay": {"recording": recording(), "cluster": simcomm.star(2, **LINK)},
        },
        **_of_ringlab(folder),
    }


def _write_files(folder: Path) -> None:
    for name, text in {"here": ON_HERE, "spread": SPREAD}.items():
        (folder / f"{name}.toml").write_text(text)
    TRACE.write(folder / "one.trace.json")
    calibration().write(folder / "calibration.json")
    recording().write(folder / "recording.json")
    (folder / "graph.json").write_text(json.dumps(nx.node_link_data(STAR.graph, edges="edges")))


def _of_collectives(folder: Path) -> dict[str, dict[str, Any]]:
    sized = {"algorithm": RING, "world_size": 4}
    return {
        "algorithm": {"collective": "all_reduce"},
        "build_schedule": sized,
        "verify": sized,
        "find_algorithm": {"reference": "all_reduce/ring"},
        "make_call": {**sized, "nbytes": 1000},
        "on_group": {"program": iter([send(1, 1), recv(0, 2)]), "ranks": [4, 6]},
        "parse_size": {"text": "1 KiB"},
        "read_calibration": {"path": folder / "calibration.json"},
        "read_trace": {"path": folder / "one.trace.json"},
        **{name: {"peer": 1, "chunk": 0} for name in ("send", "recv", "recv_reduce")},
        **{name: {"chunk": 0, "into": 1} for name in ("copy", "reduce")},
    }


def _of_simcomm(folder: Path) -> dict[str, dict[str, Any]]:
    two = simcomm.preset("dgx-a100", 2)
    return {
        "fat_tree": {"ports": 4, **LINK},
        "from_graph": {"graph": STAR.graph},
        "from_links": {"links": LINKS},
        "fully_connected": {"hosts": 3, **LINK},
        "preset": {"name": "dgx-h100", "nodes": 2},
        "read_cluster": {"path": folder / "graph.json"},
        "ring": {"hosts": 4, **LINK},
        "star": {"hosts": 4, **LINK},
        "torus": {"dimensions": [2, 2], **LINK},
        "two_level_tree": {"racks": 2, "hosts_per_rack": 2, **LINK},
        "choose": {"collective": "all_reduce", "cluster": STAR, "nbytes": 1 << 20},
        "ecmp": {},
        "place_in_blocks": {"cluster": two},
        "place_round_robin": {"cluster": two},
        "place_on": {"cluster": STAR, "hosts": ["h0", "h1"]},
        "shortest": {"graph": STAR.graph},
        "run": {"algorithm": RING, "cluster": STAR, "nbytes": 4100},
        "this_machine": {"ranks": 2},
        "train": {"training": TRAINING, "cluster": STAR, "steps": 1},
        "with_usable_bandwidths": {"cluster": STAR},
    }


def _of_realcomm() -> dict[str, dict[str, Any]]:
    one, several = torch.ones(2), [torch.ones(2)]
    both = {"output": one, "input": one}
    return {
        "run": {"algorithm": RING, "cluster": HERE, "nbytes": 4098},
        "train": {"training": TRAINING, "cluster": HERE, "steps": 1},
        "calibrate": {"ranks": 2},
        "launch": {"worker": max, "world_size": 2},
        "emulate": {"cluster": STAR},
        "set_status": {"text": "reading"},
        "report_progress": {"done": 1, "total": 2, "text": "images"},
        "execute": {"algorithm": RING, "tensor": one},
        **{name: {"tensor": one} for name in ("all_reduce", "broadcast", "reduce")},
        "all_gather_into_tensor": {"output_tensor": one, "input_tensor": one},
        "reduce_scatter_tensor": both,
        "all_to_all_single": both,
        "barrier": {},
        "all_gather": {"tensor_list": several, "tensor": one},
        "reduce_scatter": {"output": one, "input_list": several},
        "all_to_all": {"output_tensor_list": several, "input_tensor_list": several},
        "gather": {"tensor": one, "gather_list": several},
        "scatter": {"tensor": one, "scatter_list": several},
    }


def _of_ringlab(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    star, here = {"scenario": ringlab.load("star8")}, {"scenario": ringlab.load(folder / "here.toml")}
    pasted = pasted_files.write(folder, "topo.txt", pasted_files.workstation_matrix())
    rows = nccl_tests_output.table([(2**28, 45e3)], gpus=2, per_process=1)
    functions = {
        "animate": {"source": star["scenario"], "path": folder / "c.png"},
        "bench": {},
        "calibrate": {"ranks": 2},
        "check": {"algorithms": RING, "world_sizes": [2]},
        "compare": here,
        "compare_strategy": {"scenario": folder / "spread.toml"},
        "run_strategy": {"scenario": folder / "spread.toml"},
        "describe": {"files": [pasted]},
        "doctor": {},
        "explain": {"scenario": "two-p5"},
        "explain_measured": {"file": pasted_files.write(folder, "table.txt", rows)},
        "hardware": {},
        "init": {"name": "star8", "output": folder / "first.toml"},
        "list_names": {},
        "load": {"reference": "star8"},
        "plan": {"scenario": "quickstart", "target_samples": 1e8},
        "plot": {"kind": "path", "source": star["scenario"], "path": folder / "d.png"},
        "predict": star,
        "predict_devices": {"scenario": "examples/gpt2_xl.toml", "devices": [8]},
        "predict_sweep": {"scenario": "star8", "sweep": "cluster.hosts=2,4"},
        "profile_model": {"model": "resnet50"},
        "run": here,
    }
    return {
        "ringlab": functions,
        "Scenario": {
            "trace": {"self": star["scenario"]},
            "calibrate": {"self": here["scenario"]},
        },
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, dict[str, Any]]]]:
    """Return the valid calls, in a process that is the only rank of a group and starts no processes."""
    folder = tmp_path_factory.mktemp("arguments")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr("realcomm.emulation.network.EmulatedNetwork.__enter__", refuse_to_start)
        patch.setattr("realcomm.launching.launcher.under_torchrun", lambda: False)
        patch.setattr("realcomm.launching.launcher._Processes", refuse_to_start)
        _write_files(folder)
        yield usual(folder)
    dist.destroy_process_group()


def functions_of(package: str) -> dict[str, Callable[..., Any]]:
    """Return the public functions of a package, or the methods of Scenario that are not functions of ringlab."""
    module = ringlab.Scenario if package == "Scenario" else PACKAGES[package]
    members = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    shared = vars(ringlab) if package == "Scenario" else {}
    return {
        name: member
        for name, member in members.items()
        if inspect.isfunction(member) and (not shared or getattr(ringlab, name, None) is not member)
    }


@pytest.mark.parametrize("package", [*PACKAGES, "Scenario"])
def test_every_argument_rejects_an_invalid_value(package: str, table: dict[str, dict[str, dict[str, Any]]]) -> None:
    accepted, functions = [], functions_of(package)
    assert table[package].keys() == functions.keys()
    for name, function in functions.items():
        for argument, parameter in inspect.signature(function).parameters.items():
            if argument in FLAGS | {"self"} or parameter.kind is parameter.VAR_KEYWORD:
                continue
            call = inspect.signature(function).bind_partial()
            value: object = (Odd(),) if parameter.kind is parameter.VAR_POSITIONAL else Odd()
            call.arguments.update(table[package][name] | {argument: value})
            try:
                if applied := APPLIED.get(f"{package}.{name}"):
                    applied(**call.arguments)
                else:
                    function(*call.args, **call.kwargs)
            except InputError as error:
                outcome = "" if repr(value).strip("(),") in str(error) or argument in str(error) else str(error)
            except Exception as error:
                outcome = repr(error)
            except Started:
                outcome = "processes are started"
            else:
                outcome = "returned"
            accepted += [f"{name}({argument}): {outcome[:200]}"] * bool(outcome)
    assert accepted == []


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
    "states all costs, so a calibration has no effect; omit it": lambda: on_star().predict(calibration()),
    "a calibration has no effect on star of 4 hosts, 10 Gbit/s, which states all of its costs": lambda: simcomm.run(
        RING, STAR, 64, calibration=calibration()
    ),
    "a calibration only affects algorithm auto; omit": lambda: on_star().run(calibration=calibration()),
    "resume requires a [training] table": lambda: ringlab.load("two-racks").run(resume="auto"),
    "watch requires a [training] table": lambda: ringlab.load("two-racks").run(watch=Watch(Path("logs"))),
    "all_reduce/nccl: NCCL's model does not support engine; remove engine": lambda: _on_nccl(engine="simpy"),
    "all_reduce/nccl: NCCL's model does not support faults; remove faults": lambda: _on_nccl(faults=FAILS),
    "all_reduce/nccl: NCCL's model does not support buffers; remove buffers": lambda: _on_nccl(
        None, buffers=[np.ones(2, np.float32) for _ in range(16)]
    ),
    "ranks must be 2, as in its cluster, not 3; omit ranks": lambda: ringlab.load("quickstart").calibrate(3),
    "all_reduce does not have a root; remove root": lambda: collectives.verify(RING, 4, root=1),
}


def _on_nccl(nbytes: int | None = 1024, **arguments: Any) -> Any:
    return simcomm.run(nccl("all_reduce"), ringlab.load("two-p5").cluster, nbytes, **arguments)


@pytest.mark.parametrize("message", UNUSED)
def test_unused_argument_is_rejected(message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("realcomm.launching.launcher._Processes", refuse_to_start)
    TRACE.write("x.trace.json")
    calibration().write("x.json")
    with pytest.raises(InputError, match=re.escape(message)):
        UNUSED[message]()
    assert {path.name for path in tmp_path.iterdir()} == {"x.trace.json", "x.json"}
