"""``ringlab predict --devices``: trainings on several numbers of devices, what-ifs and rejected scenarios."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Ringlab, in_this_process
from scenario_texts import STAR, write

import ringlab
from collectives.errors import InputError
from collectives.records.model_profile import Measured, find_model_profile
from ringlab.commands.predicting.predict_devices import DevicesRow
from ringlab.commands.predicting.search import SearchOptions, find_meshes

RATED = "training.compute={rate = 300.0}"
GPT = "examples/gpt2_xl.toml"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ringlab:
    return in_this_process(monkeypatch, capsys)


def test_predict_devices_reports_progress_for_each_prediction() -> None:
    ticks = list[tuple[int, int, int, str]]()
    ringlab.predict_devices("star8", [1, 8], RATED, what_if="batch=8,32", tick=lambda *now: ticks.append(now))
    assert [now[1:3] for now in ticks] == [(0, 4), (1, 4), (2, 4), (3, 4)] and ticks[1][3] == "predictions, 8 devices"


def test_efficiency_falls_with_the_number_of_devices() -> None:
    answer = ringlab.predict_devices("star8", [1, 2, 4, 8], RATED, "training.gradient_sync='ring'")
    rows = answer.cases[0].rows
    assert [row.devices for row in rows] == [1, 2, 4, 8]
    assert rows[0].samples_per_s == pytest.approx(300)
    assert [row.efficiency for row in rows] == sorted((row.efficiency for row in rows), reverse=True)
    for row in rows:
        assert row.step_s == pytest.approx(sum(row.parts.values()))
        assert row.interval[0] < row.samples_per_s < row.interval[1]
        assert row.step_interval[0] < row.step_s < row.step_interval[1]
        assert row.efficiency_interval[0] <= row.efficiency <= row.efficiency_interval[1] <= 1
        assert all(low <= row.parts[name] <= high for name, (low, high) in row.parts_intervals.items())
        assert row.epoch is not None and row.epoch.seconds == pytest.approx(1437 / row.samples_per_s)
    assert answer.to_dict()["rows"][3]["bottleneck"] == "sync"


@pytest.mark.parametrize("sync", ["ring", "naive"])
def test_predict_devices_and_predict_agree_without_overlap(sync: str) -> None:
    set_sync = f"training.gradient_sync='{sync}'"
    resnet = "training.image_shape=[3, 32, 32]"
    (row,) = ringlab.predict_devices("star8", [8], set_sync, resnet).cases[0].rows
    (plain,) = ringlab.load("star8", set_sync, "training.classes=1000").predict().training
    assert row.step_s == pytest.approx(plain.step_s)
    assert row.efficiency == pytest.approx(plain.scaling_efficiency)


def test_step_time_depends_on_overlap_sync_interval_and_loaders() -> None:
    def step(*overrides: str) -> dict[str, float]:
        answer = ringlab.predict_devices("star8", [8], RATED, "training.gradient_sync='ring'", *overrides)
        return {**answer.cases[0].rows[0].parts, "total": answer.cases[0].rows[0].step_s}

    after, overlapped = step(), step("training.parallelism={overlap = true}")
    assert overlapped["sync"] < after["sync"] and overlapped["compute"] == after["compute"]
    assert step("training.sync_every=4")["sync"] == pytest.approx(after["sync"] / 4)
    assert step("training.accumulate=4")["total"] == pytest.approx(after["total"])  # the same batch, one exchange
    slow = step("training.loader_rate=10.0")
    assert slow["total"] == pytest.approx(3.2, rel=1e-3)  # a host's 32 samples at 10/s
    assert step("training.loader_rate=1e9")["input"] == pytest.approx(0, abs=1e-9)


def test_variable_batches_add_stragglers() -> None:
    job = "training={model='gpt2', batch_size=8, precision='bf16', compute={rate=100.0}}"
    equal, unequal = (
        ringlab.predict_devices("dgx-h100", [8], job, f"training.variable_batches={setting}").cases[0].rows[0]
        for setting in ("false", "true")
    )
    assert unequal.parts["stragglers"] > 4 * equal.parts["stragglers"] > 0
    assert unequal.bottleneck == "stragglers"


def test_stated_compute_time_scales_with_a_what_if_batch_size() -> None:
    small, usual = ringlab.predict_devices("star8", [1], what_if="batch=8,32").cases
    assert usual.rows[0].parts["compute"] == 4 * small.rows[0].parts["compute"] == pytest.approx(0.025 + 0.078)


def test_predict_devices_matches_search_for_a_language_model() -> None:
    scenario, framework = str(ROOT / "examples/llama2_70b.toml"), "training.framework=nemo"
    answer = find_meshes(scenario, SearchOptions(devices="64", batch=128, top=10_000), [framework])
    for strategy in ("zero1", "zero3"):
        mesh = f"training.parallelism={{strategy='{strategy}', tensor=4, pipeline=8, microbatches=64, sequence=true}}"
        (row,) = ringlab.predict_devices(scenario, [64], mesh, "training.batch_size=64", framework).cases[0].rows
        wanted = {
            "strategy": strategy, "tensor": 4, "pipeline": 8, "virtual": 1, "context": 1, "micro_batch": 1,
            "recompute": "none",
        }  # fmt: skip
        (same,) = (mesh for mesh in answer.cases[0].best if {key: mesh[key] for key in wanted} == wanted)
        assert row.step_s == pytest.approx(same["step_s"])
        assert row.memory["total"] == pytest.approx(same["memory_bytes"])
        widths = row.interval[1] / row.samples_per_s, same["tokens_interval"][1] / same["tokens_per_s"]
        assert widths[0] == pytest.approx(widths[1], rel=1e-6)
        assert row.mfu == pytest.approx(same["mfu"]) and 0.5 < row.efficiency < 1
        assert sum(row.parts.values()) == pytest.approx(row.step_s)


def test_language_model_has_one_gpu_rate_for_every_strategy() -> None:
    def rows(strategy: str, devices: Sequence[int] = (1, 8)) -> list[DevicesRow]:
        job = f"training={{model='gpt2', batch_size=8, precision='bf16', parallelism={{{strategy}}}}}"
        return list(ringlab.predict_devices("dgx-h100", devices, job).cases[0].rows)

    single, eight = rows("strategy='ddp'")
    for strategy in (
        "strategy='zero_redundancy'", "strategy='data_parallel'", "gradient_bytes=2", "overlap=false", "sync_every=8",
    ):  # fmt: skip
        alone, joined = rows(strategy)
        assert alone.samples_per_s == pytest.approx(single.samples_per_s)
        assert alone.memory["total"] == pytest.approx(single.memory["total"])
        assert 0.8 < joined.samples_per_s / eight.samples_per_s < 1.2, strategy
        assert joined.memory["total"] <= eight.memory["total"]
    assert rows("sync_every=8")[1].samples_per_s >= eight.samples_per_s > rows("overlap=false")[1].samples_per_s
    schedules = ("microbatches=8", "microbatches=8, schedule='gpipe'", "schedule='naive'")
    shipped, all_forwards, in_turn = (rows(f"pipeline=4, {more}", [8])[0] for more in schedules)
    assert all_forwards.step_s == pytest.approx(shipped.step_s)
    assert all_forwards.memory["activations"] > shipped.memory["activations"]
    assert in_turn.parts["pipeline"] / in_turn.parts["compute"] == pytest.approx(3, rel=0.15)


def test_gpu_rate_comes_from_published_runs_or_a_known_rate() -> None:
    job = "training={model='resnet50', batch_size=256, precision='fp16'}"

    def answer(rate: float, gpu: str) -> float:
        rated = f"training.compute={{rate = {rate}, gpu = '{gpu}'}}"
        return ringlab.predict_devices("dgx-h100", [1], job, rated).cases[0].rows[0].samples_per_s

    published = ringlab.predict_devices("dgx-h100", [1], job)
    assert published.compute.startswith("published rates of resnet50 on one GPU: ")
    slow, fast = (answer(rate, "V100 SXM2 16GB") for rate in (400.0, 800.0))
    assert 1.6 < fast / slow < 2.05  # twice, less what other published rates imply
    assert slow > 2 * 400 and answer(3000.0, "H100 SXM") == pytest.approx(3000)
    model = "bert:layers=6,width=512,heads=8,context=128,vocabulary=30522"
    unseen = ringlab.predict_devices("dgx-h100", [1], job.replace("resnet50", model))
    assert unseen.compute.startswith("published rates of other models on one GPU: ")
    (row,) = unseen.cases[0].rows
    assert row.interval[1] / row.samples_per_s > 1.3


def test_conclusions_list_the_network_and_assumptions() -> None:
    cards = "cluster={system = {nodes = 1, gpus = 4, gpu = 'RTX 3060'}}"
    answer = ringlab.predict_devices("dgx-h100", [4], "training.model=resnet50", cards)
    text = " ".join(answer.conclusions)
    assert "Network: PCIe through host memory inside a host; " in text
    assert "p2p is not stated" in text and "No published multi-GPU run used such a machine" in text
    assert "no published run is on RTX 3060" in answer.compute


def test_conclusions_merge_equal_errors_and_state_the_gpu_price() -> None:
    sharded, refused, bottleneck, above, network, price = ringlab.predict_devices(
        ROOT / GPT, [8, 16], what_if="batch=8..4096"
    ).conclusions
    assert "(fsdp 16)" in sharded and "on 8 devices, the efficiency exceeds 100%" in above
    batches = "16, 32, 64, 128, 256, 512, 1024, 2048 and 1 more"
    assert refused.startswith(
        f"No prediction for 8, 16 devices with training.batch_size = {batches}: batch_size 16 does"
    )
    assert refused.endswith("; the numbers are those of 8 devices with training.batch_size = 16.")
    assert bottleneck.startswith("With training.batch_size = 8, on 16 devices, the bottleneck is")
    assert network.startswith("Network: NVSwitch inside a host, efa1 at 50 GB/s between hosts; NCCL's ")
    assert price.startswith("A100 40GB SXM at $2.74 an hour: AWS p4d.24xlarge, ")
    own_price, presets = "training.price_per_hour=4.1", "preset=p4d.24xlarge,p5.48xlarge"
    priced = ringlab.predict_devices(ROOT / GPT, [8], own_price, what_if=presets).conclusions
    assert priced[-2] == "A100 40GB SXM at $4.10 an hour: training.price_per_hour."
    assert priced[-1].partition(" an hour: ")[2].startswith("AWS p5.48xlarge, ")
    for devices, whose in (([12, 13], "12, 13 devices"), ([12], "12 devices")):
        refused = ringlab.predict_devices(ROOT / GPT, [8, *devices]).conclusions[1]
        assert refused.startswith(
            f"No prediction for {whose}: 12 devices do not fill hosts of 8 GPUs; use a multiple of 8"
        )
        assert refused.endswith("; the numbers are those of 12 devices.") == (len(devices) > 1)


def test_devices_with_too_little_memory_are_reported() -> None:
    answer = ringlab.predict_devices(ROOT / GPT, [8, 16], what_if="strategy=ddp,fsdp")
    ddp, fsdp = answer.cases
    assert ddp.rows == () and [row.devices for row in fsdp.rows] == [8, 16]
    assert "does not fit into A100 40GB SXM: it needs 52.7 GiB, but only 85% of 40 GiB" in ddp.refused[0].reason
    assert fsdp.rows[1].memory["total"] < fsdp.rows[0].memory["total"] < 40 * 2**30
    epoch = fsdp.rows[0].epoch
    assert epoch is not None and epoch.dollars == pytest.approx(21.957642 * epoch.seconds / 3600)
    with pytest.raises(InputError, match="up to 1 sample a device fit"):
        ringlab.predict_devices(ROOT / GPT, [8], "training.parallelism.strategy='ddp'")


@pytest.mark.parametrize(
    ("override", "devices", "message"),
    [
        ("training.parallelism={tensor = 3}", 8, "set tensor x pipeline to a divisor of 8"),
        ("training.parallelism={tensor = 4}", 4, "KV heads .25. must be a multiple of tensor .4."),
        ("training.parallelism={pipeline = 16}", 16, "batch_size must be a multiple of the 16 microb"),
        ("training={batch_size=1000000, parallelism={pipeline=2, microbatches=1000000}}", 16, "need about 8,000,000 p"),
        ("training.compute={profile = 'a.json', gpu = 'T4'}", 8, "set exactly one source"),
        ("training.compute={profile = 'none.json'}", 8, "none.json"),
        ("training={framework='nemo', compute={rate=9.0}}", 8, "framework = 'nemo' only applies to language models"),
        ("training.model='gpt3'", 8, r"gpt2_xl\.toml: training: unknown model 'gpt3'; did you mean gpt2"),
        ("cluster.preset='dgx-1-v100'", 8, "V100 SXM2 32GB does not support bf16; set precision to fp16,"),
        ("training.seed=1", 12, "12 devices do not fill hosts of 8"),
    ],
)
def test_predict_devices_rejects_invalid_scenarios(override: str, devices: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ringlab.predict_devices(ROOT / GPT, [devices], override)


def test_wait_for_cpu_cores_grows_with_the_number_of_gpus() -> None:
    """One other process with 2 GPUs, and seven with 8, wait for the cores of the whole host."""
    training = ["training.model=vgg16", "training.compute={rate = 300.0}"]
    two, eight = ringlab.predict_devices("dgx-h100", [2, 8], *training).cases[0].rows
    assert eight.parts["processes"] == pytest.approx(7 * two.parts["processes"])


def test_predict_devices_rejects_an_unknown_compute_time() -> None:
    with pytest.raises(InputError, match="the compute time of a device is unknown"):
        ringlab.predict_devices("two-racks", [8], "training.model='resnet18'")
    with pytest.raises(InputError, match="has only 8 devices, not 16"):
        ringlab.predict_devices("star8", [16])


def test_predict_uses_the_whole_cluster_for_a_training(command: Ringlab, tmp_path: Path) -> None:
    once, all_devices = command("predict", str(ROOT / GPT)), command("predict", str(ROOT / GPT), "--devices", "16")
    assert once.status == 0 and once.out == all_devices.out
    done = command("predict", str(ROOT / GPT), "--report", tmp_path / "a.html")
    assert done.status == 2 and "predict it with --devices" in done.err
    done = command("predict", "star8", "--set", "training={compute={rate=5.0}}")
    assert done.status == 0 and "The [training] table is left out: training: compute.rate only applies" in done.out


@pytest.mark.parametrize("table", ["faults={rank=[{rank=0, slowdown=2}]}", "what_if=[{title='x', faults={}}]"])
def test_predict_devices_rejects_faults_and_what_if_tables(tmp_path: Path, table: str) -> None:
    file = write(tmp_path, STAR + "[training]\nmodel = 'resnet50'\ncompute = {rate = 5.0}\n")
    assert ringlab.predict_devices(file, [2]).cases
    with pytest.raises(InputError, match=f"{table.partition('=')[0]}: training on many devices"):
        ringlab.predict_devices(file, [2], table)


def test_one_device_step_time_equals_the_measured_profile(tmp_path: Path) -> None:
    profile = ringlab.profile_model("gpt:layers=2,width=8,heads=2,context=16,vocabulary=100", batch_size=4, steps=1)
    profile.profile.write(tmp_path / "tiny.json")
    (tmp_path / "tiny.toml").write_text(
        '[cluster]\ntopology = "star"\nhosts = 2\nbandwidth = "1 Gbit/s"\nlatency = "5 us"\n'
        '[training]\nbatch_size = 4\ncompute = {profile = "tiny.json"}\n'
    )
    (row,) = ringlab.predict_devices(tmp_path / "tiny.toml", [1]).cases[0].rows
    (measured,) = profile.profile.measured
    assert row.step_s == pytest.approx(sum(measured.forward) + sum(measured.backward) + measured.optimizer)


def test_gpu_profile_scales_to_another_gpu_but_not_a_cpu(tmp_path: Path) -> None:
    profile, scenario = find_model_profile("resnet50"), tmp_path / "mine.toml"
    scenario.write_text(
        '[cluster]\npreset = "dgx-h100"\ntransport = "nccl"\n[training]\nbatch_size = 64\nprecision = "fp16"\n'
        'compute = {profile = "mine.json"}\n'
    )

    def rate(device: str) -> float:
        each = tuple(0.001 for _ in profile.layers)
        measured = Measured(device, 64, "fp16", each, each, 0.001, 0.0, 0.287, "test")
        replace(profile, measured=(measured,)).write(tmp_path / "mine.json")
        return ringlab.predict_devices(scenario, [1]).cases[0].rows[0].samples_per_s

    assert rate("NVIDIA H100 80GB HBM3") == pytest.approx(64 / 0.287)
    assert rate("Tesla V100-SXM2-16GB") > 2 * 64 / 0.287
    with pytest.raises(InputError, match="measured on 'AMD EPYC', not on a known GPU"):
        rate("AMD EPYC")


def test_devices_table_has_unbroken_words_and_is_plotted(command: Ringlab, tmp_path: Path) -> None:
    what_if, picture = "algorithm=ring,recursive_doubling", tmp_path / "rates.svg"
    options = ("--set", RATED, "--devices", "1,2,4,8", "--what-if", what_if, "--plot", picture)
    done = command("predict", "star8", *options)
    assert done.status == 0 and picture.stat().st_size > 1000, done.err
    lines = done.out.splitlines()
    assert any(line.split()[:1] == ["gradient_sync"] for line in lines)
    assert all(f"samples/s on {count}" in done.out for count in (1, 2, 4, 8))
    assert sum(line.startswith(" recursive_doubling ") for line in lines) == sum("efficiency" in line for line in lines)
    assert "Computing: a known rate: 300 samples/s" in done.out


def test_devices_cannot_be_combined_with_options_of_a_run(command: Ringlab) -> None:
    for options, reason in (
        (("--trace", "a.json"), "trace your script with `ringlab virtual"),
        (("--calibration", GPT), "--calibration cannot"), (("--sweep", "cluster.hosts=2,4"), "use --what-if to vary"),
    ):  # fmt: skip
        done = command("predict", "star8", "--set", RATED, "--devices", "1", *options)
        assert done.status == 2 and not done.out and reason in done.err


def test_what_if_without_effect_on_throughput_states_the_reason() -> None:
    answer = ringlab.predict_devices(ROOT / GPT, [8], what_if="bucket=10,100")
    assert any(
        "does not change the throughput: buckets only matter for `ddp`" in sentence for sentence in answer.conclusions
    )
