"""Described series are read strictly, and models have the sizes that their papers and torchvision state."""

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.accuracy.series import OWN_DATA, read_series
from benchmarks.accuracy.steps import put_aside
from benchmarks.studies.one_gpu_fit import rates_table
from collectives.errors import InputError
from planner.gpus import find_series_gpu
from planner.jobs import PROFILES, find_model
from planner.one_gpu import PUBLISHED

SERIES = """
[[series]]
source = "mine"
system = "box"
model = "ResNet-50"
framework = "PyTorch"
precision = "fp16"
gpu = "V100"
node = "dlperf"
batch = 64
grad_bytes = 4
sync = "ddp"
loader = "dali"
points = [[1, 1, 100], [8, 1, 700.5]]
"""


def read(tmp_path: Path, text: str) -> None:
    (tmp_path / "series_described.toml").write_text(text)
    read_series(tmp_path)


def test_series_file_may_define_nodes_and_links(tmp_path: Path) -> None:
    (tmp_path / "series_described.toml").write_text(
        '[nodes.box]\ngpus = 8\nlink = "mine"\ncores = 8\nnic_GBps = 1.25\n[links.mine]\n"2" = 7\n"4" = 9.5\n'
        + SERIES.replace('"dlperf"', '"box"')
    )
    (series,) = read_series(tmp_path)
    assert [series.node.bus_bandwidth(gpus) / 1e9 for gpus in (1, 2, 3, 4, 8)] == [7, 7, 7, 9.5, 9.5]
    assert [point.rate for point in series.points] == [100, 700.5]


def test_user_series_may_override_catalog_values_of_a_gpu(tmp_path: Path) -> None:
    """The project's own series use only GPUs from the catalog. A user's file may state data of a GPU."""
    content = tomllib.loads((OWN_DATA / "series_described.toml").read_text(encoding="utf-8"))
    assert content.keys() == {"series"}
    (tmp_path / "series_described.toml").write_text(
        '[gpus."V100"]\nfp32 = 14\nmemory_GBps = 800\nyear = 2018\n[gpus.mine]\ncatalogue = "H100 SXM"\n'
        + SERIES + SERIES.replace('"V100"', '"mine"') + SERIES.replace('"V100"', '"L40S"')
    )  # fmt: skip
    stated, same, known = (series.gpu for series in read_series(tmp_path))
    assert (stated.vector_32, stated.memory_rate, stated.watts) == (14e12, 800e9, find_series_gpu("V100").watts)
    assert same == find_series_gpu("H100 SXM")._replace(name="mine")
    assert known == find_series_gpu("L40S") and known.watts == 350


@pytest.mark.parametrize(
    "change, message",
    [
        (("batch = 64\n", ""), "series 2.batch is missing"),
        (('sync = "ddp"', 'sync = "ps"'), "series 2: ps_paths is missing"),
        (('sync = "ddp"', 'sync = "dpp"'), "series 2.sync = 'dpp'"),
        (("[8, 1, 700.5]", "[8, 9, 700.5]"), "series 2: points: 8 GPUs on 9 nodes"),
        (("[8, 1, 700.5]", "[16, 1, 700.5]"), "series 2: points: 16 GPUs on 1 node; dlperf has 8 GPUs, so give 8 at"),
        (('"V100"', '"V101"'), "gpu = 'V101' is not described; did you mean V100"),
        (('"ResNet-50"', '"ResNet-51"'), "series 2: unknown model 'ResNet-51'; did you mean"),
        (("[[series]]", "[[serie]]"), "unknown key serie"),
    ],
)
def test_invalid_series_error_names_the_series_and_key(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, SERIES.replace('"mine"', '"first"') + SERIES.replace(*change))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "series is missing"),
        ('[links.a]\n"two" = 1\n' + SERIES, "links.a.two"),
        (SERIES.replace("700.5", "1e-300"), "points.2.3 = '1e-300' should be greater than or equal to 0.0000"),
        ("[gpus.X]\nfp32 = 1\nyear = 2020\n" + SERIES, "gpus.X: memory_GBps is missing"),
        ("[[[", "not a TOML file"),
    ],
)
def test_invalid_series_file_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_published_rates_file_is_up_to_date_with_the_series() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == rates_table()


def test_one_fifth_of_systems_is_held_out() -> None:
    systems = {series.system for series in read_series()}
    assert put_aside() < systems
    assert len(put_aside()) == round(len(systems) / 5)


@pytest.mark.parametrize(
    "name, millions",
    [
        ("ResNet-50", 25.557032),
        ("VGG16", 138.357544),
        ("InceptionV3", 23.834568),
        ("SSD300", 22.892214),  # a ResNet-50 without its last stage, and the heads of DeepLearningExamples' SSD300
        ("TXL-base", 191.72096),  # 192 million in DeepLearningExamples' README
    ],
)
def test_models_have_their_published_parameters(name: str, millions: float) -> None:
    assert find_model(name).parameters == pytest.approx(millions * 1e6, abs=0.5)


def test_model_gradients_are_listed_in_the_order_of_backward() -> None:
    for name in [*PROFILES, "BERT-base-128", "GNMT", "SSD300"]:
        gradients = find_model(name).gradients(4)
        shares = [gradient.ready for gradient in gradients]
        assert shares == sorted(shares) and shares[-1] == 1.0
        assert sum(gradient.nbytes for gradient in gradients) == 4 * find_model(name).parameters
    vgg = find_model("VGG16").gradients(4)
    assert [gradient.nbytes for gradient in vgg[:2]] == [4 * 1000, 4 * 1000 * 4096]  # the last layer's are the first


def test_find_series_gpu_accepts_only_gpus_of_the_catalog() -> None:
    assert find_series_gpu("RTX 4070 Ti SUPER").vector_32 > 40e12
    with pytest.raises(InputError, match=re.escape("not in the catalog")):
        find_series_gpu("RTX 4070 Ti SUPERB")
