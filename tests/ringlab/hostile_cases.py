"""The hostile cases: systematic ones for options, outputs and special files, and ones drawn with a seed."""

import os
import random
import socket
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import hostile_files as files
from hostile_commands import systematic_commands
from hostile_graphs import systematic_graphs
from hostile_numbers import draw_model_profile, draw_pair, systematic_numbers
from hostile_plans import systematic_plans
from hostile_records import draw_nccl_tests, draw_profile, systematic_records
from hostile_runs import HERE, Case

import simcomm
from ringlab.cli import load_command
from scenarios import shipped

NET = {"net.json": files.as_json(files.TOPOLOGY), "net.graphml": files.GRAPHML.encode()}
SHIPPED = {name: tomllib.loads(path.read_text()) for name, path in shipped().items() if "/" not in name}
SCENARIOS = {**files.SCENARIOS, **{name: table for name, table in SHIPPED.items() if name != "quickstart"}}
STAR = files.toml(files.SCENARIOS["star"])
TRACE_TREE = simcomm.run("all_reduce/ring", simcomm.star(2, "10 Gbit/s", "5 us"), 64).to_dict()
TRACE = files.as_json(TRACE_TREE)


def case(name: str, *arguments: str, writes: Iterable[str] = (), **more: bytes | Callable[[Path], object]) -> Case:
    """Return a case with the files of ``more``; ``a_toml`` is ``a.toml``."""
    there = {name.replace("_", ".", 1): content for name, content in more.items()}
    return Case(name, arguments, tuple(there.items()), tuple(writes))


VALID = (
    case("predict", "predict", "a.toml", "--trace", "a.json", a_toml=STAR),
    case("training", "predict", "a.toml", a_toml=files.toml(files.SCENARIOS["training"])),
    case("faults", "predict", "a.toml", a_toml=files.toml(files.SCENARIOS["faults"])),
    case("compiled", "predict", "a.toml", "--engine", "compiled", a_toml=STAR),
    case("fifo", "predict", "a.toml", "--engine", "compiled", a_toml=files.toml(files.SCENARIOS["ring"])),
    case("png", "animate", "a.json", "-o", "a.png", a_json=TRACE),
    case("sweep", "predict", "a.toml", "--sweep", "collective.sizes=1,2KiB", "--plot", "a.png", a_toml=STAR),
    case("hardware", "list", "hardware", "rtx3090-pcie-4x", "-o", "a.png"),
    case("machine", "predict", "a.toml", a_toml=files.toml(files.SCENARIOS["machine"])),
    case("check", "check", "all_reduce/ring", "--ranks", "2"),
    case("list", "list"),
    case("explain", "explain", "dgx-h100"),
    case(
        "graphml",
        "predict",
        "a.toml",
        "--json",
        "-",
        a_toml=files.toml(files.SCENARIOS["graphml"]),
        net_graphml=NET["net.graphml"],
    ),
)


def systematic() -> Iterator[Case]:
    """Yield the cases that are not drawn."""
    yield from _outputs()
    yield from _inputs()
    yield from _options()
    yield from _environments()
    yield from _numbers_of_the_environment()
    yield from systematic_records()
    yield from systematic_commands()
    yield from systematic_plans()
    yield from systematic_graphs()
    yield from systematic_numbers()


# What each command reads and writes -----------------------------------------------------------------------------------

WRITERS: dict[str, tuple[tuple[str, ...], str]] = {  # arguments before the output, and a suffix that it accepts
    "predict --json": (("predict", "in.toml", "--json"), ".json"),
    "predict --trace": (("predict", "in.toml", "--trace"), ".json"),
    "compare --report": (("compare", "in.toml", "--report"), ".html"),
    "predict --plot": (("predict", "in.toml", "--sweep", "collective.sizes=1,2KiB", "--plot"), ".svg"),
    "animate -o": (("animate", "in.trace.json", "-o"), ".png"),
    "list -o": (("list", "hardware", "rtx3090-pcie-4x", "-o"), ".svg"),
    "check --json": (("check", "all_reduce/ring", "--ranks", "2", "--json"), ".json"),
    "list --json": (("list", "--json"), ".json"),
    "explain -o": (("explain", "dgx-h100", "-o"), ".png"),
}


def _outputs() -> Iterator[Case]:
    there = {"in.toml": STAR, "in.trace.json": TRACE, "folder/file": b"precious"}
    for name, (arguments, suffix) in WRITERS.items():
        source = next((word for word in arguments if word.startswith("in.")), "folder/file")
        for target, (path, make, writes) in _targets(suffix, source).items():
            extra = {path: make} if make else {}
            yield Case(f"{name} to {target}", (*arguments, path), tuple({**there, **extra}.items()), writes)


Target = tuple[str, "bytes | Callable[[Path], object] | None", tuple[str, ...]]


def _targets(suffix: str, source: str) -> dict[str, Target]:
    """Return what an output may be told to be: its path, what is there, and the files that may change."""
    out = f"out{suffix}"
    deep = "/".join(["deep"] * 40) + suffix
    return {
        "new file": (out, None, (out,)),
        "old file": (out, b"old", (out,)),
        "new folder": (f"new/{out}", None, ("new/", f"new/{out}")),
        "folder": (f"out{suffix}", lambda path: path.mkdir(), ()),
        "null": (out, lambda path: path.symlink_to("/dev/null"), ()),
        "full": (out, lambda path: path.symlink_to("/dev/full"), ()),
        "node": (out, _make_null, ()),
        "pipe": (out, os.mkfifo, ()),
        "read pipe": (out, _make_read_pipe, ()),
        "socket": (out, _make_socket, ()),
        "link to file": (out, lambda path: path.symlink_to("folder/file"), ("folder/file",)),
        "link to folder": (out, lambda path: path.symlink_to("folder"), ()),
        "link to nothing": (out, lambda path: path.symlink_to("nothing"), ("nothing",)),
        "link to itself": (out, lambda path: path.symlink_to(path.name), ()),
        "link to the input": (out, lambda path: path.symlink_to(source), ("folder/file",)),
        "name of the input": (
            out,
            lambda path: path.hardlink_to(path.parent / source),
            (out,) if source == "folder/file" else (),
        ),
        "the input": (source if source.endswith(suffix) else f"./folder/../{source}", None, ("folder/file",)),
        "proc": (f"/proc/new{suffix}", None, ()),
        "proc comm": ("/proc/self/comm", None, ()),
        "sys": (f"/sys/new{suffix}", None, ()),
        "under a file": (f"in.toml/{out}", None, ()),
        "under null": (f"/dev/null/{out}", None, ()),
        "long name": ("n" * 300 + suffix, None, ()),
        "longest name": ("n" * (255 - len(suffix)) + suffix, None, ("n" * (255 - len(suffix)) + suffix,)),
        "long path": ("p/" * 3000 + out, None, ()),
        "deep": (deep, None, (*("/".join(["deep"] * n) + "/" for n in range(1, 40)), deep)),
        "empty": ("", None, ()),
        "dot": (".", None, ()),
        "dots": ("..", None, ()),
        "wrong suffix": ("out.exe", None, ("out.exe",)),
        "no suffix": ("out", None, ("out",)),
        "option": (f"--{suffix}", None, (f"--{suffix}",)),
        "escapes": (f"\x1b[31m\u202e{suffix}", None, (f"\x1b[31m\u202e{suffix}",)),
        "lines": (f"a\nb{suffix}", None, (f"a\nb{suffix}",)),
        "bytes": (f"\udcff{suffix}", None, (f"\\xff{suffix}",)),
        "markup": (f"[red]{suffix}", None, (f"[red]{suffix}",)),
        "read only": (out, _make_read_only, (out,)),
        "closed folder": (f"closed/{out}", partial(_close, mode=0o555), (f"closed/{out}",)),
        "secret folder": (f"closed/{out}", partial(_close, mode=0o000), (f"closed/{out}",)),
        "new folder in a closed one": (
            f"closed/new/{out}",
            lambda path: (path.parent.rmdir(), path.parent.parent.chmod(0o555)),
            ("closed/new/", f"closed/new/{out}"),
        ),
    }


def _make_null(path: Path) -> None:
    """Make what /dev/null is, where that is allowed; else a link to it."""
    try:
        os.mknod(path, 0o20666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to("/dev/null")


def _make_read_pipe(path: Path) -> None:
    os.mkfifo(path)
    os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # stays open, and is not read, as long as the process of all cases


def _make_socket(path: Path) -> None:
    if len(os.fsencode(path)) < 100:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


def _make_hole(path: Path, nbytes: int) -> None:
    """Make a file that claims to be large and takes no room."""
    path.touch()
    os.truncate(path, nbytes)


def _make_read_only(path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(0o444)


def _close(path: Path, mode: int) -> None:
    """Take rights to the folder of a path."""
    path.parent.chmod(mode)


def _make_unreadable(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o000)


READERS: dict[str, tuple[tuple[str, ...], dict[str, bytes]]] = {  # arguments with IN for the input, and other files
    "predict": (("predict", "IN"), {}),
    "predict --json": (("predict", "IN", "--json", "-"), {}),
    "calibration": (("predict", "a.toml", "--calibration", "IN"), {"a.toml": STAR}),
    "run": (("run", "IN"), {}),
    "compare": (("compare", "IN"), {}),
    "calibrate": (("calibrate", "IN"), {}),
    "explain": (("explain", "IN"), {}),
    "animate": (("animate", "IN", "-o", "a.png"), {}),
    "animate trace": (("animate", "IN.json", "-o", "a.png"), {}),
    "check": (("check", "IN.py"), {}),
    "algorithm": (("predict", "a.toml", "--set", 'collective.algorithms=["IN.py"]'), {"a.toml": STAR}),
    "bench": (("bench", "--algorithm", "IN.py", "-b", "8", "-e", "8"), {}),
    "json": (("predict", "a.toml", "--set", "cluster={topology='IN.json'}"), {"a.toml": STAR}),
    "graphml": (("predict", "a.toml", "--set", "cluster={topology='IN.graphml'}"), {"a.toml": STAR}),
}


def _inputs() -> Iterator[Case]:
    kinds: dict[str, tuple[str, bytes | Callable[[Path], object] | None]] = {
        "pipe": ("in", os.mkfifo),
        "zero": ("in", lambda path: path.symlink_to("/dev/zero")),
        "random": ("in", lambda path: path.symlink_to("/dev/urandom")),
        "stdin": ("in", lambda path: path.symlink_to("/dev/stdin")),
        "node": ("in", _make_null),
        "maps": ("in", lambda path: path.symlink_to("/proc/self/maps")),
        "kcore": ("in", lambda path: path.symlink_to("/proc/kcore")),
        "sys": ("in", lambda path: path.symlink_to("/sys/kernel/mm/transparent_hugepage/enabled")),
        "folder": ("in", lambda path: path.mkdir()),
        "socket": ("in", _make_socket),
        "loop": ("in", lambda path: path.symlink_to(path.name)),
        "nothing": ("in", lambda path: path.symlink_to("nothing")),
        "terabyte": ("in", partial(_make_hole, nbytes=1 << 40)),
        "70 MB": ("in", partial(_make_hole, nbytes=70 << 20)),
        "3 MB": ("in", b"a = 1\n" * 500_000),
        "unreadable": ("in", _make_unreadable),
        "secret folder": ("closed/in", partial(_close, mode=0o000)),
        "absent": ("in", None),
        "empty": ("in", b""),
        "NUL": ("in", b"\x00" * 1000),
        "binary": ("in", bytes(range(256)) * 10),
        "long name": ("n" * 300, None),
        "escapes": ("\x1b[31m\u202e", b""),
        "bytes": ("\udcff", b""),
        "lines": ("a\nb", b""),
    }
    for reader, (arguments, others) in READERS.items():
        for kind, (name, make) in kinds.items():
            words = tuple(word.replace("IN", name) for word in arguments)
            suffix = next((word.partition("IN")[2].strip("'\"]}") for word in arguments if "IN" in word), "")
            there = {**others, **({name + suffix: make} if make is not None else {})}
            yield Case(f"{reader} reads {kind}", words, tuple(there.items()), ("a.png",))


BASES: dict[str, tuple[str, ...]] = {  # the commands whose options are tried; real runs begin only where all is well
    "predict": ("predict", "a.toml"),
    "run": ("run", "a.toml", "--set", "cluster.hosts=2000"),
    "compare": ("compare", "a.toml"),
    "animate": ("animate", "a.toml", "-o", "a.png"),
    "check": ("check", "all_reduce/naive", "--ranks", "2"),
    "bench": ("bench", "--ranks", "2000"),
    "calibrate": ("calibrate", "a.toml", "--set", "cluster.hosts=0"),
    "list": ("list", "hardware", "dgx-h100"),
    "explain": ("explain", "dgx-h100"),
    "doctor": ("doctor",),
}
ARGUMENTS = (
    "", " ", "-1", "0", "1", "nan", "inf", "1e308", "9" * 400, "x", "é", "²", "\x1b[31mx", "\u202ex", "\udcff", "[red]",
    "a\nb", "1-3,5", "3-1", "1-99999999999", "1K", "1T", "0.1", "10 Gbit/s", "a=b", "cluster.hosts=1e9",
    "cluster.hosts=",
    "cluster." * 2000 + "x=1", "x." * 500 + "=1", "collective.sizes=[\"1 TiB\"]", "title=\x1b[31m", "A" * 100_000,
    "collective.algorithms.0=x", "collective.algorithms.-1=x", "cluster.hosts.1=x", "__class__=1", "=", "a", "dgx",
    "h100",
)  # fmt: skip


def _options() -> Iterator[Case]:
    there = (("a.toml", STAR),)
    for name, base in BASES.items():
        options = [option.opts[-1] for option in load_command(name).params if option.opts[0].startswith("-")]
        files_of = {"--json", "--trace", "--output", "--report"}
        for option in options:
            for value in ARGUMENTS:
                if option not in files_of and (option, name) not in {("--help", name)}:
                    yield Case(f"{name} {option} {value[:20]!r}", (*base, option, value), there, ("a.png",))
        for value in ARGUMENTS:
            yield Case(f"{name} {value[:20]!r}", (name, value), there)
            yield Case(f"{name} base {value[:20]!r}", (*base, value), there, ("a.png",))
        yield Case(f"{name} twice", (*base, *base), there, ("a.png",))
    for value in ARGUMENTS:
        yield Case(f"command {value[:20]!r}", (value,))


NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "COLUMNS", "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS")  # fmt: skip
NO_NUMBERS = ("x", "-1", "", "1.5", "9" * 30, "\x1b[31m", "\udcff")


def _numbers_of_the_environment() -> Iterator[Case]:
    """Yield variables that must be numbers, which are refused whatever the command."""
    for command in (("predict", "a.toml"), ("list",), ("doctor",)):
        for variable in NUMBERS:
            for value in (*NO_NUMBERS, *(["0"] if variable in NUMBERS[5:] else [])):
                yield Case(f"{variable}={value!r} {command[0]}", command, (("a.toml", STAR),), (), ((variable, value),))


def _environments() -> Iterator[Case]:
    here = files.toml({"cluster": {"preset": "this-machine", "world_size": 2}, "collective": files.ASKS})
    places = {
        "proc": "/proc/x",
        "null": "/dev/null/x",
        "long": "x" * 400,
        "empty": "",
        "escapes": "\x1b[31m",
        "bytes": "\udcff",
        "closed": f"{HERE}/closed",
    }
    for command in (
        ("predict", "a.toml"),
        ("doctor",),
        ("list",),
        ("list", "hardware", "rtx3090-pcie-4x", "-o", "a.png"),
    ):
        for variable in ("XDG_CACHE_HOME", "HOME", "TMPDIR", "COLUMNS", "TERM"):
            for kind, place in places.items():
                there = (("a.toml", here), ("closed", lambda path: path.mkdir(mode=0o555)))
                yield Case(
                    f"{variable} {kind} {command[0]}",
                    command,
                    there,
                    ("a.png",),
                    (("XDG_CACHE_HOME", ""), (variable, place)),
                )


def drawn(seeds: Iterable[int]) -> Iterator[Case]:
    """Yield a case for each seed."""
    for seed in seeds:
        yield _DRAWN[seed % len(_DRAWN)](random.Random(seed), str(seed))


def _scenario(draw: random.Random, name: str) -> Case:
    kind = draw.choice(list(SCENARIOS))
    content = files.toml(files.mutate(SCENARIOS[kind], draw))
    return Case(f"{name} {kind}", _reading(draw, "a.toml"), (("a.toml", content), *NET.items()), ("a.png", "a.gif"))


def _reading(draw: random.Random, file: str) -> tuple[str, ...]:
    """Return a command that reads a scenario."""
    return draw.choice((
        ("predict", file), ("predict", file, "--json", "-"), ("predict", file), ("predict", file, "--engine",
        "compiled"),
        ("predict", file, "--engine", "simpy", "--json", "-"), ("animate", file, "-o", "a.png"), ("compare", file),
        ("explain", file),
        ("predict", file, "--sweep", "collective.sizes=1,2KiB"), ("animate", file, "-o", "a.gif", "--size", "1 KiB"),
    ))  # fmt: skip


def _text(draw: random.Random, name: str) -> Case:
    content = files.mutate_text(files.toml(files.SCENARIOS[draw.choice(list(files.SCENARIOS))]), draw)
    return Case(f"{name} text", ("predict", "a.toml"), (("a.toml", content), *NET.items()))


def _topology(draw: random.Random, name: str) -> Case:
    content = files.as_json(files.mutate(files.TOPOLOGY, draw))
    if draw.random() < 0.15:
        content = files.mutate_text(files.as_json(files.TOPOLOGY), draw)
    there = (("a.toml", files.toml(files.SCENARIOS["file"])), ("net.json", content))
    return Case(f"{name} topology", ("predict", "a.toml", *draw.choice(((), ("--json", "-")))), there)


def _graph(draw: random.Random, name: str) -> Case:
    there = (("a.toml", files.toml(files.SCENARIOS["graphml"])), ("net.graphml", files.mutate_graphml(draw)))
    return Case(f"{name} graphml", ("predict", "a.toml"), there)


def _trace(draw: random.Random, name: str) -> Case:
    content = files.as_json(files.mutate(TRACE_TREE, draw))
    if draw.random() < 0.15:
        content = files.mutate_text(TRACE, draw)
    picture = draw.choice(("a.png", "a.png", "a.gif"))
    return Case(f"{name} trace", ("animate", "a.json", "-o", picture), (("a.json", content),), (picture,))


def _calibration(draw: random.Random, name: str) -> Case:
    content = files.as_json(files.mutate(files.CALIBRATION, draw))
    if draw.random() < 0.15:
        content = files.mutate_text(files.as_json(files.CALIBRATION), draw)
    scenario = files.toml({"cluster": {"preset": "this-machine", "world_size": 4}, "collective": files.ASKS})
    command = ("predict", "a.toml", "--calibration", "c.json", *draw.choice(((), ("--json", "-"))))
    return Case(f"{name} calibration", command, (("a.toml", scenario), ("c.json", content)))


def _set(draw: random.Random, name: str) -> Case:
    keys = [".".join(map(str, path)) for path in files.places(files.SCENARIOS["star"])] + [
        "faults.seed",
        "what_if.0.title",
        "x",
    ]
    words = []
    for _ in range(draw.choice((1, 1, 2))):
        value = files.hostile_value(draw)
        text = (
            value
            if isinstance(value, str)
            else files.toml({"v": value}).decode(errors="replace").removeprefix('"v" = ')
        )
        words += ["--set", f"{draw.choice(keys)}={text.strip()[:100_000]}".replace("\x00", "")]
    return Case(f"{name} set", ("predict", "a.toml", *map(_as_argument, words)), (("a.toml", STAR),))


def _option(draw: random.Random, name: str) -> Case:
    command = draw.choice(("predict", "animate", "check", "bench", "run"))
    options = [option.opts[-1] for option in load_command(command).params if option.opts[0].startswith("-")]
    options = [option for option in options if option not in ("--json", "--trace", "--output", "--report", "--help")]
    words = list(BASES[command])
    for _ in range(draw.choice((1, 2, 3))):
        words += [draw.choice(options), _as_argument(str(draw.choice((*ARGUMENTS, *files.TEXTS, *files.NUMBERS[:9]))))]
    return Case(f"{name} {command}", tuple(words), (("a.toml", STAR),), ("a.png",))


def _as_argument(text: str) -> str:
    """Return a text as a command line can hold it."""
    return os.fsdecode(text.encode(errors="replace").replace(b"\x00", b"?"))[:100_000]


_DRAWN = (
    _scenario, _scenario, _scenario, _topology, _trace, _calibration, _graph, _text, _set, _option, draw_profile,
    draw_nccl_tests, draw_pair, draw_model_profile,
)  # fmt: skip
