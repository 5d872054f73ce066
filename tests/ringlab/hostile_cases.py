"""Hostile cases: systematic ones for everything that commands read and write, and random ones drawn with a seed."""

import gzip
import os
import random
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import hostile_files as files
from hostile_files import Tree
from hostile_paths import SOURCES, targets
from hostile_runs import HERE, Case

from ringlab.cli import load_command
from scenarios import shipped

NET = files.as_json(files.TOPOLOGY)
SHIPPED = {name: tomllib.loads(path.read_text()) for name, path in shipped().items() if "/" not in name}
EMULATED = shipped()["emulated/star4"].read_bytes()
STAR, TRAINING = (files.toml(files.SCENARIOS[name]) for name in ("star", "training"))
PLAN, DEVICES = (files.toml(files.OTHERS[name]) for name in ("plan", "devices"))
TRACE = files.as_json(files.TRACE)
SEVERAL_HOSTS = ("--set", "cluster.hosts=2000")  # too many for this machine, so that no run begins


def case(name: str, *arguments: str, writes: Iterable[str] = (), **more: bytes | Callable[[Path], object]) -> Case:
    """Return a case with the files in ``more``, in which ``a_toml`` stands for ``a.toml``."""
    contents = {name.replace("_", ".", 1): content for name, content in more.items()}
    return Case(name, arguments, tuple(contents.items()), tuple(writes))


VALID = (
    case("predict", "predict", "a.toml", "--trace", "a.json", a_toml=STAR),
    case("training", "predict", "a.toml", a_toml=TRAINING),
    case("faults", "predict", "a.toml", a_toml=files.toml(files.SCENARIOS["faults"])),
    case("ring", "predict", "a.toml", a_toml=files.toml(files.SCENARIOS["ring"])),
    case("png", "animate", "a.json", "-o", "a.png", a_json=TRACE),
    case("sweep", "predict", "a.toml", "--sweep", "collective.sizes=1,2KiB", "--plot", "a.png", a_toml=STAR),
    case("cluster", "plot", "cluster", "star8", "-o", "a.png"),
    case("hardware", "list", "hardware", "rtx3090-pcie-4x"),
    case("machine", "predict", "a.toml", a_toml=files.toml(files.SCENARIOS["machine"])),
    case("check", "check", "all_reduce/ring", "--ranks", "2"),
    case("list", "list"),
    case("explain", "explain", "a.toml", a_toml=files.toml(files.OTHERS["explain"])),
    case("plan", "plan", "a.toml", a_toml=PLAN),
    case("devices", "predict", "a.toml", "--devices", "1,8", a_toml=DEVICES),
)


def systematic() -> Iterator[Case]:
    for group in (_outputs, _inputs, _options, _words, _environments, _packed):
        yield from group()


# What each command reads and writes -----------------------------------------------------------------------------------

WRITERS: dict[str, tuple[tuple[str, ...], str]] = {  # arguments before the output, and a suffix that it accepts
    "predict --json": (("predict", "in.toml", "--json"), ".json"),
    "predict --trace": (("predict", "in.toml", "--trace"), ".json"),
    "compare --report": (("compare", "in.toml", "--report"), ".html"),
    "predict --plot": (("predict", "in.toml", "--sweep", "collective.sizes=1,2KiB", "--plot"), ".svg"),
    "animate -o": (("animate", "in.trace.json", "-o"), ".png"),
    "plot -o": (("plot", "cluster", "in.toml", "-o"), ".svg"),
    "check --json": (("check", "all_reduce/ring", "--ranks", "2", "--json"), ".json"),
    "list --json": (("list", "--json"), ".json"),
}


def _outputs() -> Iterator[Case]:
    contents = {"in.toml": STAR, "in.trace.json": TRACE, "folder/file": b"precious"}
    for name, (arguments, suffix) in WRITERS.items():
        source = next((word for word in arguments if word.startswith("in.")), "folder/file")
        for target, (path, make, writes) in targets(suffix, source).items():
            extra = {path: make} if make else {}
            yield Case(f"{name} to {target}", (*arguments, path), tuple({**contents, **extra}.items()), writes)


READERS: dict[str, tuple[tuple[str, ...], dict[str, bytes]]] = {  # arguments with IN for the input, and other files
    "predict": (("predict", "IN"), {}),
    "calibration": (("predict", "a.toml", "--calibration", "IN"), {"a.toml": STAR}),
    "run": (("run", "IN"), {}),
    "compare": (("compare", "IN"), {}),
    "calibrate": (("calibrate", "IN"), {}),
    "explain": (("explain", "IN"), {}),
    "plan": (("plan", "IN"), {}),
    "prices": (("plan", "a.toml", "--prices", "IN"), {"a.toml": PLAN}),
    "animate": (("animate", "IN", "-o", "a.png"), {}),
    "animate trace": (("animate", "IN.json", "-o", "a.png"), {}),
    "animate profile": (("animate", "IN.json.gz", "-o", "a.png"), {}),
    "check": (("check", "IN.py"), {}),
    "algorithm": (("predict", "a.toml", "--set", 'collective.algorithms=["IN.py"]'), {"a.toml": STAR}),
    "bench": (("bench", "--algorithm", "IN.py", "-b", "8", "-e", "8"), {}),
    "json": (("predict", "a.toml", "--set", "cluster={topology='IN.json'}"), {"a.toml": STAR}),
    "model profile": (
        ("predict", "a.toml", "--devices", "1,8", "--set", "training.compute={profile='IN'}"), {"a.toml": DEVICES}
    ),
    "nccl-tests": (("calibrate", "--nccl-tests", "IN"), {}),
    "measured": (("explain", "--measured", "IN"), {}),
    "resume": (("run", "a.toml", "--set", "training.gradient_sync=ring", "--resume", "IN"), {"a.toml": TRAINING}),
    "checkpoints": (("run", "a.toml", "--set", "training.checkpoints='IN'", *SEVERAL_HOSTS), {"a.toml": TRAINING}),
    "log": (("run", "a.toml", "--log-dir", "IN", *SEVERAL_HOSTS), {"a.toml": TRAINING}),
}  # fmt: skip


def _inputs() -> Iterator[Case]:
    for reader, (arguments, others) in READERS.items():
        for kind, (name, make) in SOURCES.items():
            words = tuple(word.replace("IN", name) for word in arguments)
            suffix = next((word.partition("IN")[2].strip("'\"]}") for word in arguments if "IN" in word), "")
            contents = {**others, **({name + suffix: make} if make is not None else {})}
            yield Case(f"{reader} reads {kind}", words, tuple(contents.items()), ("a.png",))


BASES: dict[str, tuple[tuple[str, ...], bytes]] = {  # commands whose options are tried, and their scenario
    "predict": (("predict", "a.toml"), STAR),
    "run": (("run", "a.toml", *SEVERAL_HOSTS), STAR),
    "compare": (("compare", "a.toml"), STAR),
    "animate": (("animate", "a.toml", "-o", "a.png"), STAR),
    "plot": (("plot", "path", "a.toml", "-o", "a.png"), STAR),
    "check": (("check", "all_reduce/naive", "--ranks", "2"), STAR),
    "bench": (("bench", "--ranks", "2000"), STAR),
    "calibrate": (("calibrate", "a.toml", "--set", "cluster.hosts=0"), STAR),
    "list": (("list", "hardware", "dgx-h100"), STAR),
    "explain": (("explain", "dgx-h100"), STAR),
    "doctor": (("doctor",), STAR),
    "slurm": (("slurm", "a.toml"), STAR),
    "plan": (("plan", "a.toml"), PLAN),
}
ARGUMENTS = (
    "", "-1", "0", "1", "nan", "1e308", "9" * 400, "x", "²", "\x1b[31mx", "\udcff", "[red]", "a\nb", "'", "\\", "1-3,5",
    "3-1", "1-99999999999", "1T", "0.1", "10 Gbit/s", "a=b", "cluster.hosts=1e9", "cluster.hosts=",
    "cluster." * 2000 + "x=1", 'collective.sizes=["1 TiB"]', "title=\x1b[31m", "A" * 100_000,
    "collective.algorithms.-1=x", "cluster.hosts.1=x", "__class__=1", "=", "dgx", "/proc/x", "a.toml/x", "/dev/full",
)  # fmt: skip
FILE_OPTIONS = {"--json", "--trace", "--output", "--report", "--plot", "--help"}


def options_of(command: str) -> list[str]:
    """Return the options of a command, except those that name an output file."""
    options = (option.opts[-1] for option in load_command(command).params if option.opts[0].startswith("-"))
    return [option for option in options if option not in FILE_OPTIONS]


def _options() -> Iterator[Case]:
    for name, (base, scenario) in BASES.items():
        contents = (("a.toml", scenario),)
        for option in options_of(name):
            for value in ARGUMENTS:
                yield Case(f"{name} {option} {value[:20]!r}", (*base, option, value), contents, ("a.png",))
        for value in ARGUMENTS:
            yield Case(f"{name} {value[:20]!r}", (name, value), contents)
            yield Case(f"{name} base {value[:20]!r}", (*base, value), contents, ("a.png",))
        yield Case(f"{name} twice", (*base, *base), contents, ("a.png",))
    for value in ARGUMENTS:
        yield Case(f"command {value[:20]!r}", (value,))


WORDS: dict[tuple[str, ...], tuple[str, ...]] = {  # values of one option that have a syntax of their own
    ("predict", "a.toml", "--plot", "a.svg", "--sweep"): (
        "cluster.hosts=2..4*1.0000001", "cluster.hosts=nan..inf", "cluster.hosts=2,4,1000000000",
        "cluster.bandwidth=1e-40..1e-39Gbit/s", "cluster.hosts=" + ",".join(["2"] * 5000), "title=\x1b[31m,\u202e",
    ),
    ("predict", "a.toml", "--devices", "1,8", "--what-if"): (
        "batch=1.." + "9" * 30, "bandwidth=-1 Gbit/s", "\x1b[31m=1,2", "batch=" + ",".join(["2"] * 5000),
    ),
    ("predict", "a.toml", "--devices"): ("1,,2", "8-1", "1-65536", "1e3", "65537", "60000"),
    ("profile",): (
        "resnet\x1b[31m", "gpt:layers=1000000000,width=8,heads=2", "gpt:layers=1,layers=1", "/dev/zero:x",
        "mine.py:__import__('os')", "../../etc/passwd", "vgg16\udcff",
    ),
    ("profile", "resnet18", "--shape"): ("3,,3", ",".join(["1073741824"] * 3), "1,2,3,4,5,6,7"),
    ("plan", "a.toml", "--deadline"): ("1h", "-3 days", "1e308 days"),
}  # fmt: skip


def _words() -> Iterator[Case]:
    for words, values in WORDS.items():
        contents = (("a.toml", DEVICES if "--devices" in words else PLAN if words[0] == "plan" else STAR),)
        for value in values:
            name = f"{words[0]} {words[-1]} {value[:30]!r}"
            yield Case(
                name, (*words, value), (*contents, ("mine.py", b"def nobody(): return None\n")), ("a.svg",), QUICK
            )


PROGRAM = """
from collectives import algorithm, recv_reduce, send
@algorithm("all_reduce", chunks=1)
def mine(rank, world_size):
    if world_size == 2:
        yield send(1 - rank, 0), recv_reduce(1 - rank, 0)
"""
QUICK = (("RINGLAB_PROGRAM_SECONDS", "1"),)
VARIABLES: dict[str, tuple[str, ...]] = {  # variables, and values that they must not or may have
    **dict.fromkeys(
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "COLUMNS", "NUMBA_NUM_THREADS",
         "OMP_NUM_THREADS", "RINGLAB_PROGRAM_SECONDS", "RINGLAB_PROGRAM_MEMORY"),
        ("x", "-1", "0", "", "1.5", "nan", "1e999", "9" * 30, "\x1b[31m", "\udcff"),
    ),
    **dict.fromkeys(
        ("XDG_CACHE_HOME", "HOME", "TMPDIR"),
        ("/proc/x", "/dev/null/x", "x" * 400, "", "\x1b[31m", "\udcff", f"{HERE}/closed"),
    ),
    "LINES": ("0", "x"), "TERM": ("dumb", ""), "NO_COLOR": ("", "1"), "TZ": ("x" * 5000,), "SLURM_NTASKS": ("x",),
    "TORCHELASTIC_RUN_ID": ("x",),
}  # fmt: skip


def _environments() -> Iterator[Case]:
    scenario = files.toml({"cluster": {"preset": "this-machine", "world_size": 2}, "collective": files.ASKS})
    contents = (
        ("a.toml", scenario), ("mine.py", PROGRAM.encode()),
        ("closed", lambda path: path.mkdir(mode=0o555)),
    )  # fmt: skip
    commands = ("predict", "a.toml"), ("list",), ("doctor",), ("check", "mine.py", "--ranks", "2")
    for command in (*commands, ("plot", "cluster", "star8", "-o", "a.png")):
        for variable, values in VARIABLES.items():
            for value in values:
                set_to = (
                    (("XDG_CACHE_HOME", ""), (variable, value))
                    if variable in ("HOME", "TMPDIR")
                    else ((variable, value),)
                )
                yield Case(f"{variable} {value[:9]!r} {command[0]}", command, contents, ("a.png",), set_to)


def _nccl(name: str, content: bytes) -> Case:
    return Case(f"nccl-tests {name}", ("calibrate", "--nccl-tests", "a.txt", "--json", "-"), (("a.txt", content),))


def _packed() -> Iterator[Case]:
    packed = gzip.compress(files.as_json(files.PROFILE))
    contents: dict[str, bytes | Callable[[Path], object]] = {
        "cut": packed[:-9], "changed": packed[:20] + b"\x00" + packed[21:], "twice": packed * 2,
        "bomb": lambda path: path.write_bytes(gzip.compress(b" " * (600 << 20), 1)),
        "deep": gzip.compress(b"[" * 10**6),
    }  # fmt: skip
    for name, content in contents.items():
        yield Case(f"profile {name}", ("animate", "a.json.gz", "-o", "a.png"), (("a.json.gz", content),), ("a.png",))


def drawn(seeds: Iterable[int]) -> Iterator[Case]:
    for seed in seeds:
        yield _DRAWN[seed % len(_DRAWN)](random.Random(seed), str(seed))


class Mutable(NamedTuple):
    """A valid file, the commands that read it, and the other files of these commands."""

    file: str
    tree: Tree
    commands: tuple[tuple[str, ...], ...]
    others: tuple[tuple[str, bytes], ...] = ()


def _table(file: str, tree: Tree, *commands: str, **others: bytes) -> Mutable:
    contents = tuple((name.replace("_", ".", 1), content) for name, content in others.items())
    return Mutable(file, tree, tuple(tuple(command.split()) for command in commands), contents)


TWO_READ, FOUR_HERE = ("predict a.toml", "predict a.toml --json -"), {"preset": "this-machine", "world_size": 4}
CALIBRATED = tuple(f"{command} --calibration c.json" for command in TWO_READ)
READING = (
    *TWO_READ, "animate a.toml -o a.png", "animate a.toml -o a.gif --size 1KiB", "explain a.toml",
    "predict a.toml --sweep collective.sizes=1,2KiB",
)  # fmt: skip
COMPARE = "compare a.toml"
UNTIMED = {key: value for key, value in files.SCENARIOS["training"]["training"].items() if key != "compute"}
MUTABLE: dict[str, Mutable] = {
    **{name: _table("a.toml", tree, *READING, net_json=NET) for name, tree in SHIPPED.items()},
    **{name: _table("a.toml", tree, *READING, COMPARE, net_json=NET) for name, tree in files.SCENARIOS.items()},
    **{name: _table("a.toml", tree, f"{name} a.toml") for name, tree in files.OTHERS.items() if name != "devices"},
    "devices": _table("a.toml", files.OTHERS["devices"], "predict a.toml --devices 1,8"),
    "topology": _table("net.json", files.TOPOLOGY, *TWO_READ, a_toml=files.toml(files.SCENARIOS["file"])),
    "trace": _table("a.json", files.TRACE, "animate a.json -o a.png", "animate a.json -o a.gif"),
    "profile": _table("a.json", files.PROFILE, "animate a.json -o a.png", "animate a.json -o a.html"),
    "calibration": _table(
        "c.json", files.CALIBRATION, *CALIBRATED, a_toml=files.toml({"cluster": FOUR_HERE, "collective": files.ASKS})
    ),
    "overlap": _table(
        "c.json", {**files.OF_A_PAIR, "ranks": 4, "pair": None}, *CALIBRATED,
        a_toml=files.toml({"cluster": FOUR_HERE, "training": UNTIMED}),
    ),
    "pair": _table(
        "c.json", files.OF_A_PAIR, *(f"{command} --set collective.sizes=4KiB" for command in CALIBRATED),
        a_toml=EMULATED,
    ),
    "model": _table(
        "m.json", files.MODEL, "predict a.toml --devices 1,8 --set training.compute={profile='m.json'}", a_toml=DEVICES
    ),
}  # fmt: skip


def _file(draw: random.Random, name: str) -> Case:
    kind = draw.choice(list(MUTABLE))
    file, tree, commands, others = MUTABLE[kind]
    write = files.toml if file.endswith(".toml") else files.as_json
    content = files.mutate_text(write(tree), draw) if draw.random() < 0.15 else write(files.mutate(tree, draw))
    return Case(f"{name} {kind}", draw.choice(commands), ((file, content), *others), ("a.png", "a.gif", "a.html"))


def _set(draw: random.Random, name: str) -> Case:
    keys = [".".join(map(str, path)) for path in files.places(files.SCENARIOS["star"])] + ["faults.seed", "x"]
    words = []
    for _ in range(draw.choice((1, 1, 2))):
        value = files.hostile_value(draw)
        if not isinstance(value, str):
            value = files.toml({"v": value}).decode(errors="replace").removeprefix('"v" = ')
        words += ["--set", _as_argument(f"{draw.choice(keys)}={value.strip()}")]
    return Case(f"{name} set", ("predict", "a.toml", *words), (("a.toml", STAR),))


def _option(draw: random.Random, name: str) -> Case:
    command = draw.choice(("predict", "animate", "check", "bench", "run", "slurm"))
    words, scenario = BASES[command]
    for _ in range(draw.choice((1, 2, 3))):
        value = str(draw.choice((*ARGUMENTS, *files.TEXTS, *files.NUMBERS[:9])))
        words = (*words, draw.choice(options_of(command)), _as_argument(value))
    return Case(f"{name} {command}", words, (("a.toml", scenario),), ("a.png",))


def _as_argument(text: str) -> str:
    """Return a text without the characters that a command line cannot contain."""
    return os.fsdecode(text.encode(errors="replace").replace(b"\x00", b"?"))[:100_000]


_DRAWN = (*[_file] * 5, _set, _option, lambda draw, name: _nccl(name, files.mutate_nccl_tests(draw)))
