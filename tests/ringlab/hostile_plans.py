"""Hostile cases of plans, profiles of models, trainings on many devices, and published series."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_files as files
from hostile_files import Tree
from hostile_runs import Case

Content = bytes | Callable[[Path], object]
ODD_FILES: dict[str, Content] = {
    "empty": b"", "nulls": b"\x00" * 5000, "bytes": b"\xff\xfe\xc3\x28", "marked": b"\xef\xbb\xbf",
    "deep": b"[" * 100_000,
    "objects": b'{"a":' * 50_000, "number": b"9" * 10**6, "long": b"x" * (3 << 20),
    "text": b"\x1b[31m,\xe2\x80\xae\n1,2\n",
    "folder": lambda path: path.mkdir(), "pipe": os.mkfifo, "zero": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name), "nowhere": lambda path: path.symlink_to("nowhere"),
    "process": lambda path: path.symlink_to("/proc/self/mem"), "list": b"[1, 2]", "null": b"null", "nan": b"NaN",
}  # fmt: skip
VALUES: tuple[Tree, ...] = (
    -1, 0, 10**30, 1e308, float("nan"), float("inf"), True, "", "\x1b[31m\u202e", "x" * 5000, [], [[]], {},
    {"a": {}}, None, "１", -0.5,
)  # fmt: skip

PLANNED: dict[str, Tree] = {
    "title": "t", "training": {"model": "resnet50", "batch_size": 32},
    "plan": {"target_samples": 1e6, "known_rates": {"V100": 400.0}, "most_nodes": 1},
}  # fmt: skip
LANGUAGE: dict[str, Tree] = {
    "title": "t", "training": {"model": "llama3-70b", "batch_size": 1, "precision": "bf16"},
    "plan": {"target_samples": 1e6, "providers": ["Lambda"]},
}  # fmt: skip
PLAN_KEYS = (
    "title", "training.model", "training.batch_size", "training.accumulate", "training.precision",
    "training.optimizer",
    "training.parameters", "plan.target_samples", "plan.budget", "plan.deadline", "plan.most_nodes", "plan.providers",
    "plan.known_rates", "plan.known_rates.V100", "training.loader",
    "training.parallelism.bucket_mb", "training.parallelism.gradient_bytes", "plan.spot", "plan.nothing", "training",
)  # fmt: skip
HEAD = (
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Price,SpotPrice,Region,Provider,Gpu,Machine,"
    "Interconnect,P2P,NumaNodes,NicGbps,Date,Source\n"
)
ROW = "p3.2xlarge,8,61,V100,1,1 x V100,3.06,,us-east-1,AWS,V100 SXM2 16GB,,,,,,2026-08-26,https://example.org\n"
PRICES: tuple[tuple[str, str], ...] = (
    ("3.06", "nan"), ("3.06", "-1"), ("3.06", "0"), ("3.06", "1e999"), ("3.06", ""), (",1,1 x", ",0,1 x"),
    (",1,1 x", ",1000000,1 x"), (",1,1 x", ",x,1 x"), ("2026-08-26", "2026-13-45"), ("2026-08-26", ""),
    ("AWS", "\x1b[31m"), ("p3.2xlarge", "x" * 100_000), ("p3.2xlarge", '"p3'), ("V100 SXM2 16GB", "T9000"),
    ("Price", "Cost"), ("Price,", "Price,Price,"), ("us-east-1", "us\neast"), (ROW, ""), (ROW, ROW * 30_000),
    (HEAD, ""), ("\n", "\r"), ("https://example.org", "javascript:alert(1)"), (",,us-east", ",-2,us-east"),
    (",,,,,2026", ",NVLink,x,9,1e9,2026"),
)  # fmt: skip


def systematic_plans() -> Iterator[Case]:
    """Yield the cases, none of which is drawn."""
    yield from _plans()
    yield from _prices()
    yield from _profiles()
    yield from _devices()


def _set(key: str, value: Tree) -> str:
    text = files.toml({"v": value}).decode(errors="replace").removeprefix('"v" = ').strip()
    return f"{key}={text[:2000]}" if text and "\x00" not in text else f"{key}=[]"


def _plans() -> Iterator[Case]:
    there, language = (("a.toml", files.toml(PLANNED)),), (("l.toml", files.toml(LANGUAGE)),)
    for number, key in enumerate(PLAN_KEYS):
        for shift in range(5):
            value = VALUES[(5 * number + 3 * shift) % len(VALUES)]
            yield Case(f"plan {key} {str(value)[:20]!r}", ("plan", "a.toml", "--set", _set(key, value)), there)
        value = VALUES[5 * number % len(VALUES)]
        yield Case(f"language plan {key}", ("plan", "l.toml", "--set", _set(key, value)), language)
    for option in ("--target-samples", "--budget", "--deadline"):
        for text in (*files.ODD_WORDS, "1h", "3 days", "-3 days", "1e308 days"):
            yield Case(f"plan {option} {text[:20]!r}", ("plan", "a.toml", option, text), there)
    for output in ("a.toml", "a.exe", "", "/dev/full", "/proc/x.png", "a.toml/x.svg", "p.csv", "n" * 300 + ".png"):
        for option in ("--plot", "--json"):
            if (option, output) not in (("--json", "/dev/full"), ("--json", "")):
                with_prices = (*there, ("p.csv", (HEAD + ROW).encode()))
                words = ("plan", "a.toml", "--prices", "p.csv", option, output)
                yield Case(f"plan {option} {output[:20]!r}", words, with_prices, (output,) if output == "a.exe" else ())
    for name, content in ODD_FILES.items():
        yield Case(f"plan of {name}", ("plan", "b.toml"), (("b.toml", content),))


def _prices() -> Iterator[Case]:
    there = ("a.toml", files.toml(PLANNED))
    for number, (before, after) in enumerate(PRICES):
        text = (HEAD + ROW).replace(before, after, -1 if before == "\n" else 1)
        spot = ("--spot",) if number % 2 else ()
        words = ("plan", "a.toml", "--prices", "p.csv", *spot)
        yield Case(f"prices {before[:9]!r} {after[:9]!r}", words, (there, ("p.csv", text.encode())))
    for name, content in ODD_FILES.items():
        yield Case(f"prices {name}", ("plan", "a.toml", "--prices", "p.csv"), (there, ("p.csv", content)))


MODELS = (
    "", "resnet", "resnet\x1b[31m", "gpt:", "gpt:layers=0", "gpt:layers=1000000000,width=8,heads=2", "gpt:layers=nan",
    "gpt:layers=1,layers=1", "gpt:width=7,heads=2", "gpt:x=1", "gpt:layers=" + "9" * 400, "mine.py", "mine.py:",
    "nowhere.py:x", "/dev/zero:x", "mine.py:__import__('os')", "../../etc/passwd", "vgg16\udcff", "RESNET50",
)  # fmt: skip
MINE = b"def nobody(): return None\n"


def _profiles() -> Iterator[Case]:
    for model in MODELS:
        limits = (("RINGLAB_PROGRAM_SECONDS", "1"),)
        yield Case(f"profile {model[:30]!r}", ("profile", model), (("mine.py", MINE),), (), limits)
    for shape in (*files.ODD_WORDS, "3,,3", "3,224,224,", ",".join(["1073741824"] * 3), "1,2,3,4,5,6,7"):
        yield Case(f"profile shape {shape[:20]!r}", ("profile", "resnet18", "--shape", shape))
    for more in (
        ("--batch-size", "0"), ("--batch-size", "-1"), ("--batch-size", "9" * 40), ("--steps", "0"),
        ("--device", "tpu"),
        ("--precision", "int1"), ("--dataset", "nothing"), ("--trace", "t.json"), ("-o", "/proc/x.json"),
        ("-o", "t.json/x"),
        ("--batch-size", "1", "--trace", "t.json"),
        ("--batch-size", "1", "--trace", "/dev/zero"),
    ):  # fmt: skip
        yield Case(f"profile with {more}", ("profile", "resnet18", *more), (("t.json", b"{}"),))


SPREAD: dict[str, Tree] = {
    "cluster": {"topology": "star", "hosts": 8, "bandwidth": "10 Gbit/s", "latency": "5 us", "transport": "ideal"},
    "training": {"model": "resnet50", "batch_size": 32, "compute": {"rate": 300.0}, "gradient_sync": "ring"},
}  # fmt: skip
SPREAD_KEYS = (
    "training.model", "training.batch_size", "training.parallelism", "training.parallelism.strategy",
    "training.parallelism.tensor",
    "training.parallelism.pipeline", "training.parallelism.data", "training.parallelism.bucket_mb",
    "training.compute",
    "training.compute.rate", "training.compute.profile", "training.compute.gpu", "training.price_per_hour",
    "training.loader_rate",
    "training.samples_per_epoch", "training.gradient_sync", "training.image_shape", "training.precision",
)  # fmt: skip


def _devices() -> Iterator[Case]:
    there = (("a.toml", files.toml(SPREAD)),)
    for number, key in enumerate(SPREAD_KEYS):
        for shift in range(5):
            value = VALUES[(5 * number + 3 * shift + 1) % len(VALUES)]
            words = ("predict", "a.toml", "--devices", "1,8", "--set", _set(key, value))
            yield Case(f"devices {key} {str(value)[:20]!r}", words, there)
    for devices in (*files.ODD_WORDS, "1,,2", "8-1", "1-65536", "1e3", "65537", "8,8,8", "60000", "7"):
        yield Case(f"devices {devices[:20]!r}", ("predict", "a.toml", "--devices", devices), there)
    for what_if in ("", "=", "batch", "batch=", "batch=0", "batch=1.." + "9" * 30, "bandwidth=nan",
    "link=-1 Gbit/s", "\x1b[31m=1,2",
                    "strategy=ddp,fsdp,x", "bucket=1e-9,1e9", "algorithm=nobody", "preset=x",
                    "batch=" + ",".join(["2"] * 5000)):  # fmt: skip
        yield Case(
            f"devices what if {what_if[:20]!r}", ("predict", "a.toml", "--devices", "1,8", "--what-if", what_if), there
        )
    for more in (
        ("--sweep", "cluster.hosts=2,4"), ("--report", "r.html"), ("--plot", "a.toml"), ("--plot", "x.exe"),
        ("--json", "a.toml"),
        ("--trace", "a.toml"), ("--trace", "/proc/x"), ("--plot", "/dev/full"),
    ):  # fmt: skip
        yield Case(f"devices beside {more}", ("predict", "a.toml", "--devices", "1,8", *more), there)
    for name, content in ODD_FILES.items():
        words = ("predict", "a.toml", "--devices", "1,8", "--set", 'training.compute={profile="m.json"}')
        yield Case(f"devices by profile {name}", words, (*there, ("m.json", content)))
