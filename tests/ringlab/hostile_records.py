"""Hostile records of other programs (torch's profiler, nccl-tests), users' programs, environments and outputs."""

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_files as files
from hostile_files import Tree
from hostile_runs import Case
from nccl_tests_output import table

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
NCCL = table([(1024, 20.0), (1 << 20, 60.0), (1 << 26, 900.0)])
NCCL_CHANGES = (
    ("1048576", "nan"), ("1048576", "-1"), ("1048576", "1e999"), ("1048576", "²"), ("1048576", "9" * 5000),
    ("float", "\x1b[31m"),
    ("sum", ""), ("\n", "\r"), ("\n", "\r\n"), ("\n", "\x00"), ("time", "tim"), ("#", ""),
    ("NVIDIA", "\u202eNVIDIA"),
    ("A100", "B" * 100_000), ("nGpus 8", "nGpus 0"), ("nGpus 8", f"nGpus {10**30}"), ("Rank  1", "Rank  0"),
    ("all_reduce", "all"),
    ("  0", "  N/A"), ("20.00", "0.00"), ("20.00", "inf"), ("(us)", "(ms)"),
    ("host00", "\ufeffhost"), ("device  3", "device -3"),
)  # fmt: skip
HEAD = """import os, sys, time, threading
from collections import *
from collectives import algorithm, copy, recv, recv_reduce, reduce, send

"""
MINE = '@algorithm("all_reduce", chunks=1)\ndef mine(rank, world_size):\n'
RIGHT = "    if world_size == 2:\n        yield send(1 - rank, 0), recv_reduce(1 - rank, 0)\n"
BODIES: dict[str, str] = {  # programs beside those of test_hostile_programs.py
    "recurses": "    return mine(rank, world_size)\n",
    "prints megabytes": "    print('x' * 30_000_000)\n" + RIGHT,
    "prints lines": "    for n in range(100_000): print('ringlab: \\x1b[31m', n)\n" + RIGHT,
    "prints to no end": "    while True: print('x' * 1000)\n    yield ()\n",
    "spoofs": "    sys.stderr.write('ringlab: fine\\n')\n" + RIGHT,
    "changes folder": "    os.chdir('/'); open(os.devnull, 'w').write('x')\n" + RIGHT,
    "is its own end": "    os.remove(__file__) if os.path.exists(__file__) else None\n" + RIGHT,
    "closes files": "    os.closerange(0, 200)\n" + RIGHT,
    "deletes modules": "    sys.modules.clear()\n" + RIGHT,
    "raises what cannot be shown": "    raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})\n    yield\n",
    "raises a group": "    raise ExceptionGroup('\\x1b[31m', [ValueError('x' * 10**6)] * 1000)\n    yield\n",
    "raises a chain": "    try: 1 / 0\n    except Exception as e: raise e from e\n    yield\n",
    "yields itself": "    step = []\n    step.append(step)\n    yield step\n",
    "yields a huge step": "    yield (send(1 - rank, 0),) * 3_000_000\n",
    "yields dicts": "    yield {'send': 1}\n    yield {send(0, 0)}\n",
    "yields types": "    yield send\n    yield int, type\n",
    "sends to itself": "    yield send(rank, 0)\n",
    "sends to nobody": "    yield send(-1, -1), recv(10**9, 10**9)\n",
    "sends nan": "    yield send(float('nan'), 0), recv(float('inf'), True)\n",
    "counts down": "    yield send(1 - rank, 0, count=-5)\n",
    "has a lambda": "    yield (send(1 - rank, lambda: 0),)\n",
    "leaves threads": "    threading.Thread(target=time.sleep, args=(60,)).start()\n" + RIGHT,
    "leaves a handler": "    import atexit; atexit.register(time.sleep, 60)\n" + RIGHT,
    "sets limits": "    sys.setrecursionlimit(10**9)\n    f = lambda: f()\n    f()\n    yield ()\n",
    "is asynchronous": "    async def f(): yield\n    return f()\n",
    "returns endless channels": "    return iter(int, 1)\n",
    "returns none": "    return None\n",
    "returns many channels": "    return [iter(()) for _ in range(100_000)]\n",
    "waits for input": "    input()\n    yield ()\n",
    "changes its answer": "    yield (copy(0, 0) if os.getpid() % 2 else ()), send(1 - rank, 0)\n",
}
FILES: dict[str, bytes] = {
    "with a mark": b"\xef\xbb\xbf" + (HEAD + MINE + RIGHT).encode(),
    "with nulls": (HEAD + MINE + RIGHT).encode().replace(b"\n", b"\n\x00", 3),
    "in utf-16": (HEAD + MINE + RIGHT).encode("utf-16"),
    "in no encoding": b"# -*- coding: nothing -*-\n" + (HEAD + MINE + RIGHT).encode(),
    "in rot13": b"# -*- coding: rot13 -*-\n" + (HEAD + MINE + RIGHT).encode(),
    "with tabs": (HEAD + MINE + RIGHT).replace("    ", "\t", 1).encode(),
    "deep": (HEAD + "x = " + "(" * 5000 + ")" * 5000).encode(),
    "deep in unary": (HEAD + "x = " + "-" * 100_000 + "1").encode(),
    "long": (HEAD + "x = 1\n" * 300_000 + MINE + RIGHT).encode(),
    "of a class": (HEAD + '@algorithm("all_reduce")\nclass mine: ...\n').encode(),
    "of a lambda": (HEAD + 'mine = algorithm("all_reduce")(lambda rank, world_size: iter(()))\n').encode(),
    "of a partial": (HEAD + 'import functools\nalgorithm("all_reduce")(functools.partial(print))\n').encode(),
    "of no collective": (HEAD + '@algorithm("all\\x1b[31m" * 1000)\ndef mine(rank, world_size): yield\n').encode(),
    "with many": (
        HEAD + "".join(f'@algorithm("barrier")\ndef f{n}(rank, world_size): yield\n' for n in range(500))).encode(),
    "with a name": (HEAD + '@algorithm("barrier", name="x" * 10**6)\ndef f(rank, world_size): yield\n').encode(),
    "with odd chunks": (HEAD + MINE.replace("chunks=1", "chunks=lambda p: 10**30") + RIGHT).encode(),
    "with more chunks than numbers": (HEAD + MINE.replace("chunks=1", "chunks=10**15") + RIGHT).encode(),
    "with more scratch than numbers": (HEAD + MINE.replace("chunks=1", "chunks=1, scratch=10**15") + RIGHT).encode(),
    "with no chunks": (HEAD + MINE.replace("chunks=1", "chunks=float('nan')") + RIGHT).encode(),
    "with few arguments": (HEAD + MINE.replace("rank, world_size", "rank") + RIGHT).encode(),
    "with odd defaults": (HEAD + MINE.replace("world_size", "world_size, x=[10**5000]") + RIGHT).encode(),
}  # fmt: skip


def systematic_records() -> Iterator[Case]:
    """Yield the cases that are not drawn."""
    for name, body in BODIES.items():
        there = (("mine.py", (HEAD + MINE + body).encode()),)
        writes = ("mine.py/",) if "own end" in name else ()  # whatever becomes of it
        yield Case(f"program {name}", ("check", "mine.py", "--ranks", "1-3"), there, writes, QUICK)
    for name, content in FILES.items():
        yield Case(f"file {name}", ("check", "mine.py", "--ranks", "1-3"), (("mine.py", content),), (), QUICK)
    for before, after in NCCL_CHANGES:
        for count in (1, -1):
            yield _nccl(f"{before[:9]!r} {after[:9]!r} {count}", NCCL.replace(before, after, count).encode())
    yield from _environments()
    yield from _compressed()


QUICK = (("RINGLAB_PROGRAM_SECONDS", "1"),)


def _nccl(name: str, content: bytes) -> Case:
    return Case(f"nccl-tests {name}", ("calibrate", "--nccl-tests", "a.txt", "--json", "-"), (("a.txt", content),))


def _environments() -> Iterator[Case]:
    program, scenario = HEAD + MINE + RIGHT, files.toml(files.SCENARIOS["star"])
    for variable in ("RINGLAB_PROGRAM_SECONDS", "RINGLAB_PROGRAM_MEMORY"):
        for value in ("", "0", "-1", "nan", "inf", "1e999", "x", "9" * 400, "\x1b[31m", "1 GiB"):
            command, there = ("check", "mine.py", "--ranks", "2"), (("mine.py", program.encode()),)
            yield Case(f"{variable} {value[:9]!r}", command, there, (), ((variable, value),))
    values = {
        "COLUMNS": ("0", "-1", "1", "x", "9" * 30), "LINES": ("0", "x"), "TERM": ("dumb", ""), "NO_COLOR": ("", "1"),
        "RANK": ("x", "-1", "1", "9" * 30), "WORLD_SIZE": ("0", "x"), "LOCAL_RANK": ("x",),
        "TORCHELASTIC_RUN_ID": ("x",), "TZ": ("x" * 5000,), "OMP_NUM_THREADS": ("x", "0"), "SLURM_NTASKS": ("x",),
    }  # fmt: skip
    for variable, some in values.items():
        for value in some:
            for command in (("predict", "a.toml"), ("list",)):
                there = (("a.toml", scenario),)
                yield Case(f"{variable} {value[:9]!r} {command[0]}", command, there, (), ((variable, value),))


def _compressed() -> Iterator[Case]:
    whole = files.as_json(PROFILE)
    packed = gzip.compress(whole)
    contents = {
        "whole": packed, "cut": packed[:-9], "changed": packed[:20] + b"\x00" + packed[21:], "empty": b"",
        "plain": whole,
        "more": packed + b"more", "twice": packed + packed, "bomb": gzip.compress(b" " * (600 << 20), 1),
        "nested": gzip.compress(packed), "deep": gzip.compress(b"[" * 10**6), "number": gzip.compress(b"9" * 10**6),
    }  # fmt: skip
    for name, content in contents.items():
        yield Case(f"profile {name}", ("animate", "a.json.gz", "-o", "a.png"), (("a.json.gz", content),), ("a.png",))
    folders: dict[str, dict[str, bytes | Callable[[Path], object]]] = {
        "empty": {"p": Path.mkdir}, "of one rank twice": {"p/a.json": whole, "p/b.json": whole},
        "of others": {"p/a.txt": b"x", "p/b.json": b"{}"}, "of folders": {"p/a.json": lambda path: path.mkdir()},
        "of links": {"p/a.json": lambda path: path.symlink_to(path.name)},
        "of many": {f"p/{n}.json": whole.replace(b'"rank": 0', f'"rank": {n}'.encode()) for n in range(40)},
    }  # fmt: skip
    for name, there in folders.items():
        yield Case(f"profile folder {name}", ("animate", "p/", "-o", "a.png"), tuple(there.items()), ("a.png",))


def draw_profile(draw: random.Random, name: str) -> Case:
    """Return a case with a wrong profile."""
    content = files.as_json(files.mutate(PROFILE, draw))
    picture = draw.choice(("a.png", "a.html"))
    return Case(f"{name} profile", ("animate", "a.json", "-o", picture), (("a.json", content),), (picture,))


def draw_nccl_tests(draw: random.Random, name: str) -> Case:
    """Return a case with wrong output of nccl-tests."""
    text = NCCL
    for _ in range(draw.choice((1, 1, 2, 3))):
        before, after = draw.choice(NCCL_CHANGES)
        text = text.replace(before, after, draw.choice((1, -1)))
    return _nccl(f"{name} {draw.random():.3f}", files.mutate_text(text.encode(), draw))
