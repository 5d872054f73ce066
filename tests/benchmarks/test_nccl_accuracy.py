"""Scores of tables with known errors, the JSON of the answer, and directories of tables."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Ringlab

from benchmarks.accuracy import tables
from benchmarks.accuracy.judging import (
    SIZE_CLASSES,
    Judged,
    baseline_medians,
    class_of,
    concatenate,
    score_classes,
    score_systems,
)
from benchmarks.accuracy.nccl import Times, alpha_beta, compare_series, family_of, judged_series
from benchmarks.accuracy.nccl_answer import AccuracyAnswer, TorchMachine, accuracy, estimate_with_torch
from benchmarks.accuracy.tables import COLUMNS, read_tables
from collectives import InputError
from simcomm.nccl.descriptions import FILE_NAME, describe_preset, describe_system, put_aside, read_systems
from simcomm.nccl.predict import predict_seconds

SIZES = np.array([1024.0, 65536, 65537, 16 * 2**20, 2**25, 2**30])


def compared(
    system: str, errors: list[float], *, collective: str = "all_reduce", family: str = "EFA", width: float = 1.2
) -> Judged:
    measured = np.geomspace(1e-5, 1e-2, len(SIZES))
    predicted = measured * (1 + np.array(errors))
    keys = {"system": system, "family": family, "collective": collective}
    return Judged(
        keys={**{name: np.full(len(SIZES), value) for name, value in keys.items()}, "class": class_of(SIZES)},
        measured=measured,
        predicted=predicted,
        low={0.8: predicted / width},
        high={0.8: predicted * width},
        baselines={"twice": 2 * measured},
    )


def test_accuracy_score_is_the_median_of_system_medians():
    first = compared("a", [0.1, -0.3, 0.0, 0.0, 4.0, 2.0])
    two = compared("b", [0.4, 0.4, 0.0, 0.5, 0.1, 0.1])
    three = compared("c", [-0.5, -0.5, 0.2, 0.2, 0.3, 0.3])
    judged = concatenate([first, two, three])
    scores = score_classes(judged)
    assert scores["small"].median == pytest.approx(0.4)
    assert scores["mid"].median == pytest.approx(0.2)
    assert scores["large"].median == pytest.approx(0.3)
    assert scores["large"].mean_capped == pytest.approx((1.0 + 0.1 + 0.3) / 3), "3.0 counts as 1"
    assert scores["small"].systems == 3
    systems = score_systems(judged)
    assert systems["a"]["small"].median == pytest.approx(0.2)
    assert systems["a"]["small"].signed == pytest.approx(-0.1)
    assert baseline_medians(judged) == {"twice": {name: pytest.approx(1.0) for name in SIZE_CLASSES}}


def test_accuracy_uses_at_most_twelve_sizes_per_series():
    systems = read_systems()
    judged = list(judged_series(systems, read_tables(systems)))
    assert max(len(series.nbytes) for _, series in judged) == 12
    assert not {system.slug for system, _ in judged} & put_aside()
    assert not [system.slug for system, _ in judged if system.skip]
    rows = compare_series(judged[:3], lambda system, collective, nbytes: Times(nbytes, nbytes, nbytes), {})
    assert [*rows.by("system")] == [*dict.fromkeys(system.slug for system, _ in judged[:3])]


def test_family_of_a_system_follows_from_its_gpus_and_network():
    lines = {
        "EFA": {"machine": "aws_p5", "nodes": 2, "gpus": 8},
        "InfiniBand, RoCE": {"machine": "dgx_h100", "nodes": 2, "gpus": 8},
        "other networks": {"machine": "gcp_a3mega", "nodes": 2, "gpus": 8},
        "NVSwitch": {"machine": "dgx_h100", "nodes": 1, "gpus": 8},
        "NVLink mesh, bridge": {"machine": "dgx1_v100", "nodes": 1, "gpus": 8},
        "xGMI": {"nodes": 1, "gpus": 8, "gpu": "MI300X"},
        "PCIe, peer to peer": {"nodes": 1, "gpus": 4, "gpu": "L40S", "layout": "switch"},
        "PCIe, host memory": {"nodes": 1, "gpus": 4, "gpu": "L40S"},
        "MPI on CPUs": {"nodes": 1, "gpus": 4, "gpu": "CPU"},
    }
    assert {name: family_of(describe_system("x", line)) for name, line in lines.items()} == {
        name: name for name in lines
    }


def test_alpha_beta_baseline_equals_the_textbook_formula():
    two = describe_preset("dgx-h100", 2, 8)
    seconds = alpha_beta(two, "all_reduce", np.array([0.0, 1e9]))
    assert seconds[0] == pytest.approx(28 * 0.6e-6 + 2 * 2.7e-6)
    assert seconds[1] - seconds[0] == pytest.approx(1e9 * 30 / 16 / 400e9)
    machine = describe_system("x", {"nodes": 1, "gpus": 2, "gpu": "RTX 4090"})
    assert alpha_beta(machine, "send_recv", np.array([0.0]))[0] == pytest.approx(1e-6)


def test_torch_baseline_estimates_gpus_and_restores_torch():
    from torch._inductor import comm_analysis

    hopper = TorchMachine("hopper", 8, True)
    estimate = estimate_with_torch(hopper, "all_reduce", 8, [2**30])
    assert estimate is not None and 2**30 * 1.75 / estimate[0] == pytest.approx(370e9, rel=0.05), "its NVLink of Hopper"
    assert estimate_with_torch(hopper, "broadcast", 8, [1024]) is None
    gathered, scattered = (estimate_with_torch(hopper, name, 8, [2**27]) for name in ("all_gather", "reduce_scatter"))
    assert gathered is not None and scattered is not None and gathered[0] < scattered[0], "it counts the input of each"
    slow = estimate_with_torch(TorchMachine("ada", 2, False), "all_reduce", 2, [2**30])
    assert slow is not None and slow[0] > 5 * estimate[0]
    assert comm_analysis.get_gpu_type.__module__ == comm_analysis.__name__


@pytest.fixture(scope="module")
def own() -> AccuracyAnswer:
    return accuracy()


def test_accuracy_json_has_medians_of_size_classes_and_baselines(own: AccuracyAnswer):
    content = own.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content.keys() == {"classes", "systems", "baselines"}
    assert not own.systems.keys() & put_aside() and "23 systems are held out and not looked at" in own.notes
    assert list(content["classes"]) == ["small", "mid", "large"]
    for score in content["classes"].values():
        assert score.keys() == {"median", "mean_capped", "systems", "coverage80"}
    for scores in content["systems"].values():
        assert scores.keys() <= {"small", "mid", "large"}
        assert all(score.keys() == {"median", "signed"} for score in scores.values())
    assert content["baselines"].keys() == {"torch", "tuner", "alpha-beta"}
    assert all(medians.keys() == {"small", "mid", "large"} for medians in content["baselines"].values())


def test_model_beats_the_baselines_in_every_size_class(own: AccuracyAnswer):
    for name, score in own.classes.items():
        assert score.median is not None
        assert score.median < 0.2
        assert all(score.median < (medians[name] or 0) for medians in own.baselines.values())


def make_directory(folder: Path, factor: float = 2.0) -> Path:
    """Write two systems whose tables are the model's own times divided by ``factor``. ``b`` is held out."""
    lines = {"a": 'machine = "aws_p5", nodes = 2, gpus = 8', "b": 'nodes = 1, gpus = 4, gpu = "RTX 4090"'}
    systems = "\n".join(f"{slug} = {{ {line} }}" for slug, line in lines.items())
    (folder / FILE_NAME).write_text(f'[systems]\n{systems}\nc = {{ nodes = 1, gpus = 2, gpu = "T4" }}\n')
    sizes = [2**k for k in range(10, 31, 2)]
    for slug, system in read_systems(folder).items():
        if slug in lines:
            seconds = predict_seconds(system, "all_reduce", sizes) / factor
            rows = [f"all_reduce,,,{size},{time * 1e6:.12g},," for size, time in zip(sizes, seconds, strict=True)]
            (folder / f"{slug}.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    (folder / "put_aside.txt").write_text("b\n")
    return folder


def test_user_directory_is_evaluated_with_shipped_parameters(tmp_path: Path):
    answer = accuracy(make_directory(tmp_path))
    assert answer.systems.keys() == {"a"}
    assert all(score.median == pytest.approx(1.0) for score in answer.systems["a"].values())
    assert all(score.signed == pytest.approx(1.0) for score in answer.systems["a"].values())
    assert answer.notes == ("described, without a table: c", "1 systems are held out and not looked at")
    assert accuracy(tmp_path, only_held_out=True).systems.keys() == {"b"}


def test_system_with_a_single_rank_is_omitted_with_a_note(tmp_path: Path):
    folder = make_directory(tmp_path)
    with (folder / FILE_NAME).open("a") as file:
        file.write('alone = { nodes = 1, gpus = 1, gpu = "T4" }\n')
    (folder / "alone.csv").write_text((folder / "a.csv").read_text())
    answer = accuracy(folder)
    assert answer.systems.keys() == {"a"}
    assert "one rank alone, which communicates with nobody: alone" in answer.notes
    with pytest.raises(InputError, match="alone has a single GPU, so NCCL does not communicate"):
        predict_seconds(read_systems(folder)["alone"], "all_reduce", [1024])


def test_notes_list_omitted_tables_and_rows(tmp_path: Path):
    make_directory(tmp_path)
    (tmp_path / "d.csv").write_text("")
    with (tmp_path / "a.csv").open("a") as file:
        file.write("all_reduce,,,0,5.0,,\nall_reduce,,,1000000,100.0,10.00,17.50\n")
        file.write("all_reduce,,,48,1.0,,\nall_reduce,,,48,7.0,,\n")
    assert accuracy(tmp_path).notes == (
        "described, without a table: c",
        "tables that are not described, and not looked at: d",
        "1 systems are held out and not looked at",
        "1 rows of no bytes, or without a time and below 0.3 GB/s, are not counted: a (1)",
        "a: busbw of 1 rows does not follow from algbw for 16 ranks",
        "a: one size of a collective is there several times, up to 7 times apart",
    )


def test_accuracy_command_prints_a_table_and_writes_json_and_png(tmp_path: Path, accuracy_of: Ringlab):
    folder = make_directory(tmp_path, factor=1.0)
    files = ["--json", tmp_path / "a.json", "--plot", tmp_path / "a.png"]
    done = accuracy_of("--data", folder, *files)
    assert done.status == 0, done.err
    assert "torch's estimator" in done.out and "0.0 % (" in done.out
    assert json.loads((tmp_path / "a.json").read_text())["classes"]["small"]["coverage80"] == 1.0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_directory_without_tables_is_rejected(tmp_path: Path):
    make_directory(tmp_path)
    (tmp_path / "a.csv").unlink()
    with pytest.raises(InputError, match=r"no table left to predict: described, without a table: a, c; held out: b"):
        accuracy(tmp_path)
    (tmp_path / "b.csv").rename(tmp_path / "other.csv")
    with pytest.raises(InputError, match=r"no table <slug>\.csv found for any system in"):
        accuracy(tmp_path)
    (tmp_path / "other.csv").rename(tmp_path / "b.csv")
    with pytest.raises(InputError, match=r"x\.gif: a plot is written as \.png or \.svg or \.pdf"):
        accuracy(tmp_path, only_held_out=True).draw(tmp_path / "x.gif")


def test_table_with_too_many_rows_for_the_memory_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectives.budget.Gigabyte.ENTRIES", 3)
    lines = ["collective,bytes,time_us", *(f"all_reduce,{size},10.0" for size in (8, 16, 32))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert len(tables.read_table(tmp_path / "a.csv").rows) == 3
    (tmp_path / "a.csv").write_text("\n".join([*lines, lines[-1]]))
    with pytest.raises(
        InputError, match=r"a\.csv: line 5: contains more than 3 rows; pass a smaller file, or allow more memory"
    ):
        tables.read_table(tmp_path / "a.csv")
