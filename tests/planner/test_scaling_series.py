"""Described series are read strictly, and models have the sizes that their papers and torchvision give."""

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.accuracy.steps import put_aside
from collectives.errors import InputError
from planner.scaling.descriptions import OWN_DATA, find_scaling_gpu, read_series
from planner.scaling.models import PROFILES, find_model

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


NODE = '[nodes.a]\ngpus = 1\nlink = "host"\ncores = 1\nnic_GBps = 1\n'


def read(tmp_path: Path, text: str) -> None:
    (tmp_path / "series_described.toml").write_text(text)
    read_series(tmp_path)


def test_a_file_may_use_the_projects_nodes_and_its_own(tmp_path: Path) -> None:
    (tmp_path / "series_described.toml").write_text(
        '[nodes.box]\ngpus = 8\nlink = "mine"\ncores = 8\nnic_GBps = 1.25\n[links.mine]\n"2" = 7\n"4" = 9.5\n'
        + SERIES.replace('"dlperf"', '"box"')
    )
    (found,) = read_series(tmp_path)
    assert [found.node.bandwidth(gpus) for gpus in (1, 2, 3, 4, 8)] == [7, 7, 7, 9.5, 9.5]
    assert [point.rate for point in found.points] == [100, 700.5]


def test_figures_of_gpus_have_one_source(tmp_path: Path) -> None:
    """The project's own series say of a GPU only which one of the catalogue it is; a stranger's may say figures."""
    own = tomllib.loads((OWN_DATA / "series_described.toml").read_text(encoding="utf-8"))
    assert all(table.keys() == {"catalogue"} for table in own["gpus"].values())
    (tmp_path / "series_described.toml").write_text(
        '[gpus."V100"]\nfp32 = 14\nmemory_GBps = 800\nyear = 2018\n[gpus.mine]\ncatalogue = "H100 SXM"\n'
        + SERIES + SERIES.replace('"V100"', '"mine"') + SERIES.replace('"V100"', '"L40S"')
    )  # fmt: skip
    stated, same, known = (one.gpu for one in read_series(tmp_path))
    assert (stated.vector_32, stated.memory_rate, stated.watts) == (14e12, 800e9, find_scaling_gpu("V100").watts)
    assert same == find_scaling_gpu("H100 SXM")._replace(name="mine")
    assert known == find_scaling_gpu("L40S") and known.watts == 350


@pytest.mark.parametrize(
    "change, message",
    [
        (("batch = 64\n", ""), "line 17: batch is missing"),
        (('sync = "ddp"', 'sync = "ps"'), "line 17: ps_paths is missing"),
        (('sync = "ddp"', 'sync = "dpp"'), "line 17: sync = 'dpp'"),
        (("grad_bytes", "grad_byte"), "line 17: (grad_bytes is missing|unknown key 'grad_byte')"),
        (("batch = 64", "batch = nan"), "line 17: batch"),
        (("[8, 1, 700.5]", "[8, 1]"), "line 17: points"),
        (("[8, 1, 700.5]", "[8, 9, 700.5]"), "line 17: points: 8 GPUs on 9 nodes"),
        (("[8, 1, 700.5]", "[16, 1, 700.5]"), "line 17: points: 16 GPUs on 1 node; dlperf has 8 GPUs, so give 8 at"),
        (("[8, 1, 700.5]", "[8, 1, true]"), "line 17: points"),
        (('"V100"', '"V101"'), "gpu = 'V101' is not described; did you mean V100"),
        (('"dlperf"', '"dlpref"'), "node = 'dlpref'"),
        (('"ResNet-50"', '"ResNet-51"'), "line 17: model = 'ResNet-51' is not known; did you mean"),
        (("[[series]]", "[[serie]]"), "unknown key 'serie'"),
        (("points =", "points ="), None),
    ],
)
def test_what_is_wrong_is_refused_with_its_line_and_key(
    tmp_path: Path, change: tuple[str, str], message: str | None
) -> None:
    first = SERIES.lstrip("\n").replace('"mine"', '"first"') + "\n# two\n\n"
    text = first + SERIES.lstrip("\n").replace(*change)
    if message is None:
        read(tmp_path, text)
        return
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "describes no series"),
        ("series = 1", "describes no series"),
        ("[nodes]\na = 1", r"\[nodes\] holds tables"),
        (NODE + 'machine = "dgx-1-v10"\n' + SERIES, "nodes.a: machine = 'dgx-1-v10' is not in the hardware catalogue"),
        (NODE + 'machine = "dgx-1-v100"\n' + SERIES, "nodes.a: machine = 'dgx-1-v100' has 8 GPUs, and gpus = 1"),
        ('[links.a]\n"two" = 1\n' + SERIES, "'two' is no GPU count"),
        ('[links.a]\n"2" = 0\n' + SERIES, "links.a: 2 = 0"),
        ('[links.a]\n"2" = 1\n"02" = 3\n' + SERIES, "links.a: 02 stands for 2 GPUs, whose bandwidth is given already"),
        ('[links.a]\n"٢" = 1\n' + SERIES, "'٢' is no GPU count"),
        (
            SERIES.replace("700.5", "1e-300"),
            "line 2: points = '1e-300' should be greater than or equal to 0.0000",
        ),
        ("[gpus.X]\nfp32 = 1\nyear = 2020\n" + SERIES, "gpus.X: memory_GBps is missing"),
        ("[nodes.a]\ngpus = 1\nlink = 'zz'\ncores = 1\nnic_GBps = 1\n" + SERIES, "nodes.a: link = 'zz'"),
        ("[[[", "not a TOML file"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_own_series_are_all_described_and_a_fifth_of_their_systems_is_put_aside() -> None:
    systems = {one.system for one in read_series()}
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
def test_models_have_the_parameters_that_are_published(name: str, millions: float) -> None:
    assert find_model(name).parameters == pytest.approx(millions * 1e6, abs=0.5)


def test_gradients_come_in_the_order_of_backward() -> None:
    for name in [*PROFILES, "BERT-base-128", "GNMT", "SSD300"]:
        gradients = find_model(name).gradients(4)
        shares = [gradient.ready for gradient in gradients]
        assert shares == sorted(shares) and shares[-1] == 1.0
        assert sum(gradient.nbytes for gradient in gradients) == 4 * find_model(name).parameters
    vgg = find_model("VGG16").gradients(4)
    assert [one.nbytes for one in vgg[:2]] == [4 * 1000, 4 * 1000 * 4096]  # the last layer's are the first


def test_gpus_of_the_catalogue_are_known_too() -> None:
    assert find_scaling_gpu("RTX 4070 Ti SUPER").vector_32 > 40e12
    with pytest.raises(InputError, match=re.escape("not in the catalogue")):
        find_scaling_gpu("RTX 4070 Ti SUPERB")
