"""The model without one ingredient at a time: each ablation changes what is predicted or fitted, and leaves nothing."""

import numpy as np
import pytest

from benchmarks.studies import nccl_fit as fit
from benchmarks.studies.nccl_ablations import ABLATIONS, WIDER, ablation
from simcomm.nccl.descriptions import read_systems
from simcomm.nccl.parameters import read_definitions
from simcomm.nccl.predict import predict_seconds

SIZES = [2.0**10, 2.0**16, 2.0**22, 2.0**28]
SLUGS = (
    "a100_80g_2x8_aws_p4de_efa",  # a plug-in that tells its latency and allows Simple only
    "v100_sxm2_16g_8x_nvlink_hybridmesh_2019",  # one process launches, before 2.14
    "rtx4090_4x_kalavai",  # hosts of a cluster, and PCIe switches without P2P
    "a100_40g_3x8_hdr4",  # three nodes, LL
    "x_2x4_ib1nic_reducescatter_issue128",  # a guessed NIC
)


def predicted() -> np.ndarray:
    systems = read_systems()
    return np.concatenate([predict_seconds(systems[slug], "all_reduce", SIZES) for slug in SLUGS])


@pytest.mark.parametrize("title", [title for title, changes in ABLATIONS.items() if changes])
def test_an_ablation_changes_the_model_while_it_lasts(title: str):
    before = predicted()
    with ablation(title):
        inside, spreads = predicted(), {one.name: one.spread for one in vars(fit)["read_definitions"]().values()}
    wider = {one.name: WIDER * one.spread for one in read_definitions().values()} == spreads
    assert (inside != before).any() or wider
    assert (predicted() == before).all()


def test_the_whole_model_is_the_first_and_an_unknown_ablation_is_an_error():
    assert not next(iter(ABLATIONS.values()))
    with pytest.raises(KeyError), ablation("without gravity"):
        pass
