"""Model profiles: known parameters and FLOPs, strict files, models that cannot be traced."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torchvision

from benchmarks.studies.shipped_profiles import TORCHVISION
from collectives.errors import InputError
from collectives.records.model_profile import (
    TRANSFORMERS,
    find_model_profile,
    parse_transformer,
    read_model_profile,
    shipped_model_profiles,
    with_sequence,
)
from realcomm.profiling.measured import measure
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from realcomm.profiling.tracing import trace_model
from realcomm.training.model_files import torchvision_models
from ringlab.commands.measuring.profile import profile_model

SMALL = "gpt:layers=2,width=8,heads=2,context=16,vocabulary=100"


def test_every_supported_model_has_a_shipped_profile() -> None:
    assert {*shipped_model_profiles()} == {*TORCHVISION, *TRANSFORMERS}


@pytest.mark.parametrize(
    ("name", "parameters", "gflops"),  # torchvision's documentation counts a multiplication with its sum once
    [("resnet18", 11_689_512, 1.81), ("vgg16", 138_357_544, 15.47), ("resnext101_32x8d", 88_791_336, 16.41),
     ("mobilenet_v2", 3_504_872, 0.30), ("vit_b_16", 86_567_656, 17.56)],
)  # fmt: skip
def test_parameters_and_flops_match_torchvision(name: str, parameters: int, gflops: float) -> None:
    profile = find_model_profile(name)
    assert profile.parameters == parameters
    assert profile.forward_flops / 2e9 == pytest.approx(gflops, abs=0.006)
    backward = sum(layer.backward_flops for layer in profile.layers)
    first = next(layer for layer in profile.layers if layer.forward_flops)  # has no gradient of its input
    assert backward == 2 * profile.forward_flops - (0 if first.kind == "Linear" else first.forward_flops)
    gradients = profile.gradients()
    assert sum(each.nbytes for each in gradients) == 4 * profile.parameters
    assert [each.ready for each in gradients] == sorted(each.ready for each in gradients)
    assert gradients[-1].ready == 1.0


def test_shipped_profile_is_up_to_date() -> None:
    made = replace(profile_on_meta(find_model("resnet18")), source="")
    assert made == replace(find_model_profile("resnet18"), source="")


@pytest.mark.slow
def test_models_can_be_profiled_at_their_longest_sequence() -> None:
    assert profile_on_meta(find_model("llama3-405b:context=131072")).forward_flops > 10**17


def test_transformer_profile_matches_closed_forms() -> None:
    profile = profile_on_meta(find_model(SMALL))
    layers, h, s, v = 2, 8, 16, 100
    assert profile.parameters == v * h + s * h + layers * (12 * h * h + 13 * h) + 2 * h
    assert profile.forward_flops == layers * (24 * s * h * h + 4 * s * s * h) + 2 * s * h * v
    of_block = {block.name: block for block in profile.blocks}
    assert of_block["blocks.0"].output_bytes == 4 * s * h
    assert of_block["blocks.0"].forward_flops == of_block["blocks.1"].forward_flops
    assert find_model_profile("llama-7b").parameters == 6_738_415_616  # of its paper
    source, shipped = find_model("gpt2-xl"), find_model_profile("gpt2-xl")
    assert (source.name, source.shape, source.described) == ("gpt2-xl", shipped.shape, shipped.sample)


def test_profile_is_read_back_from_its_file(tmp_path: Path) -> None:
    profile = find_model_profile("alexnet")
    profile.write(tmp_path / "one.json")
    assert read_model_profile(tmp_path / "one.json") == profile


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("item_bytes", 3, "item_bytes must be 1, 2, 4 or 8, not 3"),
        ("schema_version", 99, "schema version 1"),
        ("layers", [["a", "Linear", "a", [1], -1, 0, 0, 0, 0, 0, 0]], "forward_flops of 'a' must be from 0 to"),
        ("layers", [[number, "L", number, [], 1, 0, 0, 0, 0, 0, 0] for number in "aba"], "consecutive layers"),
    ],
)
def test_profile_with_an_invalid_value_is_rejected(key: str, value: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    find_model_profile("alexnet").write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=message) as caught:
        read_model_profile(path)
    assert str(path) in str(caught.value)


UNTRACEABLE = """
import torch
class Looks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else x
def build():
    return Looks()
def lazy():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10))
def nothing():
    return 3
"""


def test_torchvision_models_are_listed_without_import() -> None:
    assert sorted(torchvision_models()) == torchvision.models.list_models(module=torchvision.models)


def test_untraceable_model_of_a_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(UNTRACEABLE + "def fine():\n    return torch.nn.Sequential(torch.nn.Linear(4, 3))\n")
    fine = trace_model(f"{path}:fine", (4,))
    assert fine == profile_on_meta(find_model(f"{path}:fine", (4,)))
    assert (fine.parameters, fine.forward_flops) == (15, 24)
    for name, message in (
        ("build", r"cannot be traced .* must not read tensor values"),
        ("lazy", "layer 1 has no sizes yet; use Linear with fixed sizes"),
        ("nothing", "returns int"),
        ("other", "no function other"),
    ):
        with pytest.raises(InputError, match=message):
            profile_on_meta(find_model(f"{path}:{name}", None if name == "lazy" else (4,)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt:layers=2,width=8", "heads, context, vocabulary is missing"),
        ("gpt:layer=2", "did you mean layers"),
        (SMALL.replace("heads=2", "heads=3"), "width 8 must be a multiple of heads 3"),
        ("gpt2-xxl", "did you mean gpt2-xl"),
        ("nonsense", "unknown model 'nonsense'; use a torchvision model"),
    ],
)
def test_unknown_model_name_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_model(text)


def test_measured_time_is_distributed_over_all_layers(tmp_path: Path) -> None:
    answer = profile_model(SMALL, batch_size=3, steps=2)
    (measured,) = answer.profile.measured
    assert measured.batch_size == 3 and measured.loading == 0
    assert len(measured.forward) == len(measured.backward) == len(answer.profile.layers)
    assert sum(measured.forward) > 0 and sum(measured.backward) > 0
    times = answer.to_dict()["measured"]
    assert times["forward"] == pytest.approx(sum(block["forward_s"] for block in answer.to_dict()["blocks"]))
    answer.profile.write(tmp_path / "one.json")
    assert read_model_profile(tmp_path / "one.json").measured == (measured,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 2, "device": "tpu"}, "unknown device 'tpu'"),
        ({"batch_size": 2, "precision": "int3"}, "precision 'int3'"),
        ({"precision": "bf16"}, "--precision bf16 only applies to measured times; add --batch-size N"),
        ({"shape": "3,0"}, "--shape '3,0'"),
    ],
)
def test_invalid_profile_options_are_rejected(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        profile_model("resnet18", **given)


def test_model_that_fails_when_run_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(UNTRACEABLE.replace("x.sum() > 0", "not x.is_meta and x.nothing"))
    source = find_model(f"{path}:build", (4,))
    with pytest.raises(InputError, match="fails: AttributeError"):
        measure(source, find_model_profile("resnet18"), 2)


@pytest.mark.parametrize(("longer", "shorter"), [("bert-large-512", 384), ("bert-base-512", 128)])
def test_profile_at_another_sequence_matches_tracing(longer: str, shorter: int) -> None:
    scaled = find_model_profile(longer).with_sequence(shorter)
    traced = find_model_profile(f"{longer.rpartition('-')[0]}-{shorter}")
    layers, expected = ([layer for layer in each.layers if layer.name != "positions"] for each in (scaled, traced))
    assert layers == expected
    assert (scaled.sample, scaled.shape) == (traced.sample, traced.shape)
    assert parse_transformer(scaled.model)[1] == traced.shape


def test_sequence_longer_than_the_position_embedding_is_rejected() -> None:
    assert parse_transformer(with_sequence("llama3-8b", 65536))[1].context == 65536
    with pytest.raises(InputError, match="sequence = 2048: gpt2 has 1024 positions; use at most 1024"):
        with_sequence("gpt2", 2048)
    with pytest.raises(InputError, match="resnet50 is not a transformer"):
        find_model_profile("resnet50").with_sequence(128)
