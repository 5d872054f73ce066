"""``ringlab calibrate --nccl-tests``: predictions adapted to a user's output of nccl-tests."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Ringlab
from nccl_tests_output import table

from collectives import InputError
from simcomm.nccl.catalogue import match_gpu
from simcomm.nccl.descriptions import describe_system, read_systems
from simcomm.nccl.measured.calibration import (
    calibration_file,
    find_calibration,
    make_calibration,
    predict_calibrated,
    system_line,
)
from simcomm.nccl.measured.nccl_tests import read_nccl_tests
from simcomm.nccl.predict import predict_collective, predict_seconds

P4D = {"machine": "aws_p4d", "nodes": 2, "gpus": 8}
COLLECTIVE = '[collective]\nname = "all_reduce"\nalgorithms = ["nccl"]\nsizes = ["1 KiB"]\n'
SIZES = [4096, 4 << 20, 1 << 30]


def slow_table(factor: float = 1.5, per_process: int = 1) -> str:
    """Return a run on two p4d hosts that takes ``factor`` times the predicted time."""
    system = describe_system("p4d", {**P4D, "nccl": "2.28"})
    seconds = predict_seconds(system, "all_reduce", SIZES) * factor
    rows = [(size, float(time) * 1e6) for size, time in zip(SIZES, seconds, strict=True)]
    return table(rows, hosts=2, gpus=8, per_process=per_process)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text(slow_table())
    return path


def test_nccl_calibration_changes_predictions_of_equal_hardware(ringlab: Ringlab, output: Path, tmp_path: Path):
    system = describe_system("p4d", {**P4D, "nccl": "2.28"})
    plain = predict_collective(system, "all_reduce", 4 << 20)
    done = ringlab("calibrate", "--nccl-tests", output, "--system", "p4d.24xlarge", "--json", tmp_path / "a.json")
    assert done.status == 0, done.err
    assert "16 ranks on 2 hosts" in done.out and "-33%" in done.out
    answer = json.loads((tmp_path / "a.json").read_text())
    assert (answer["kind"], answer["ranks"], len(answer["rows"])) == ("nccl calibration", 16, 3)
    assert answer["file"] == str(calibration_file(system))
    prediction = predict_calibrated(system, "all_reduce", 4 << 20)
    assert prediction.seconds == pytest.approx(1.5 * plain.seconds, rel=5e-3)
    assert prediction.high / prediction.low < plain.high / plain.low
    assert "adapted to measured rows of all_reduce" in prediction.notes[-1]
    older = describe_system("p4d", {**P4D, "nccl": "2.9", "procs": "single"})
    assert find_calibration(older) is not None
    between = (
        predict_calibrated(older, "all_reduce", 4 << 20).seconds
        / predict_collective(older, "all_reduce", 4 << 20).seconds
    )
    assert between == pytest.approx(1.5, rel=0.2)
    other = describe_system("p5", {"machine": "aws_p5", "nodes": 2, "gpus": 8})
    assert find_calibration(other) is None
    assert predict_calibrated(other, "all_reduce", 1024) == predict_collective(other, "all_reduce", 1024)


def test_second_nccl_calibration_replaces_the_first(ringlab: Ringlab, output: Path):
    system = describe_system("p4d", {**P4D, "nccl": "2.28"})
    for factor in (1.5, 1.2):
        output.write_text(slow_table(factor))
        assert ringlab("calibrate", "--nccl-tests", output, "--system", "aws_p4d").status == 0
        plain = predict_seconds(system, "all_reduce", [1 << 30])[0]
        assert predict_calibrated(system, "all_reduce", 1 << 30).seconds == pytest.approx(factor * plain, rel=5e-3)


def test_calibration_of_one_host_applies_to_its_gpu_type(ringlab: Ringlab, output: Path):
    output.write_text(table([(4096, 30.0), (1 << 30, 5000.0)]))
    assert ringlab("calibrate", "--nccl-tests", output).status == 0
    assert find_calibration(describe_system("x", {"nodes": 1, "gpus": 8, "gpu": "A100 SXM"})) is not None


def test_calibrate_takes_the_hardware_from_a_scenario(ringlab: Ringlab, output: Path, tmp_path: Path):
    scenario = tmp_path / "p4d.toml"
    scenario.write_text(
        'title = "two"\n[cluster]\npreset = "p4d.24xlarge"\nnodes = 2\ntransport = "nccl"\n[nccl]\nversion = "2.28"\n'
        '[collective]\nname = "all_reduce"\nalgorithms = ["nccl"]\nsizes = ["4 MiB"]\n'
    )
    times = []
    for measured in (False, True):
        if measured:
            done = ringlab("calibrate", scenario, "--nccl-tests", output)
            assert done.status == 0, done.err
        done = ringlab("predict", scenario, "--json", "-")
        assert done.status == 0, done.err
        times.append(json.loads(done.out)["collectives"][0]["time_s"])
    assert times[1] == pytest.approx(1.5 * times[0], rel=0.05)


REFUSED = {
    (): "the network between the 2 hosts is unknown; specify the machine with --system, or pass for example --set",
    ("--system", "two-p5"): "--system two-p5 is a scenario; pass it as the first argument",
    (
        "--system",
        "a100_40g_1x8_p4d_issue527",
    ): "measured on 2 hosts with 8 ranks each, but a100_40g_1x8_p4d_issue527 has",
    ("--set", "net=ib", "--set", "nic=lots"): "nic = 'lots'",
    ("star8",): '--nccl-tests requires a scenario with transport = "nccl"',
    ("star8", "--system", "aws_p4d"): "the scenario and --system both name a system",
    ("--collective", "all_gather", "--system", "aws_p4d"): None,  # the output names all_reduce
}


@pytest.mark.parametrize("options", REFUSED)
def test_calibrate_rejects_options_that_contradict_the_output(
    ringlab: Ringlab, output: Path, tmp_path: Path, options: tuple[str, ...]
):
    done = ringlab("calibrate", "--nccl-tests", output, *options)
    message = REFUSED[options]
    assert done.status == (0 if message is None else 2)
    assert (message or "") in done.err
    assert message is None or not [*tmp_path.glob("cache/ringlab/nccl-*")]


@pytest.mark.parametrize("others", [(), ("--runs", "runs.csv")])
def test_calibrate_system_requires_nccl_tests(ringlab: Ringlab, others: tuple[str, ...]):
    done = ringlab("calibrate", "--system", "aws_p4d", *others)
    assert (done.status, "require --nccl-tests FILE" in done.err) == (2, True)


@pytest.mark.parametrize(
    "slug", ["h100_2x8_aws_p5_efa", "rtx4090_4x_kalavai", "gb200_18x4_coreweave_nvl72", "mi300x_1x8_rccl"]
)
def test_written_system_description_gives_the_same_predictions(slug: str):
    system = read_systems()[slug]
    again = describe_system(slug, system_line(system))
    assert calibration_file(again) == calibration_file(system)
    sizes = np.array([1024.0, 2.0**30])
    changed = describe_system(
        slug, {**system_line(system), "cluster": system.cluster} if system.cluster else system_line(system)
    )
    assert predict_seconds(changed, "all_reduce", sizes) == pytest.approx(predict_seconds(system, "all_reduce", sizes))


def test_calibration_stores_processes_and_version_of_the_run(output: Path):
    output.write_text(slow_table(per_process=8))
    calibration = make_calibration(describe_system("p4d", P4D), read_nccl_tests(output).as_one_run(), "mine.txt")
    assert (calibration.system["procs"], calibration.system["nccl"]) == ("single", "2.28")
    with pytest.raises(InputError, match="every row has 0 bytes"):
        output.write_text(table([(0, 5.0)], hosts=2))
        make_calibration(describe_system("p4d", P4D), read_nccl_tests(output).as_one_run(), "mine.txt")


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("Tesla V100-SXM2-16GB", "V100 SXM2"), ("Tesla P100-PCIE-16GB", "P100 PCIe"), ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"), ("NVIDIA H200", "H200 SXM"), ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"), ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Quadro RTX 6000", "RTX 6000"), ("NVIDIA B200", "B200"), ("NVIDIA GH200 120GB", "GH200"), ("Tesla T4", "T4"),
        ("NVIDIA Z9000", None),
    ],
)  # fmt: skip
def test_match_gpu_finds_the_catalog_gpu_of_a_driver_name(name: str, gpu: str | None):
    match = match_gpu(name)
    assert (match and match.name) == gpu


def test_calibration_of_one_host_ignores_its_network():
    of = ({"gpu": "H100 SXM"}, {"machine": "dgx_h100"})
    by_gpu, by_machine = (describe_system("mine", {"nodes": 1, "gpus": 8, **line}) for line in of)
    assert by_gpu.net != by_machine.net and calibration_file(by_gpu) == calibration_file(by_machine)


def test_calibrate_rejects_output_of_other_gpus(ringlab: Ringlab, output: Path):
    refused = ringlab("calibrate", "--nccl-tests", output, "--system", "aws_p5")
    assert refused.status == 2 and "A100" in refused.err and "has H100 SXM" in refused.err, refused.err
    same_generation = output.with_name("mine.toml")  # GPUs of the same generation
    system = '[cluster]\nsystem = {nodes = 2, gpus = 8, gpu = "RTX 3090", net = "ib", nic = "25 GB/s"}\n'
    same_generation.write_text(system + COLLECTIVE)
    refused = ringlab("calibrate", same_generation, "--nccl-tests", output)
    assert refused.status == 2 and "mine.toml has RTX 3090" in refused.err, refused.err
