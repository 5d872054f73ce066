"""How far P2P over PCIe reaches: by NCCL's default, as observed, by settings, or rejected; and the notes about it."""

import pytest

from collectives.errors import InputError
from simcomm.nccl.communicator import default_reach, make_communicator
from simcomm.nccl.descriptions import System, describe_preset, describe_system
from simcomm.nccl.predict import outside_checked, predict_collective
from simcomm.nccl.settings import NcclSettings, level_rank

NONE = NcclSettings()
L40S = {"nodes": 1, "gpus": 4, "gpu": "L40S", "layout": "two", "nccl": "2.21"}


def kinds(line: dict, **settings) -> set[str]:
    return {hop.kind for hop in make_communicator(describe_system("mine", line), NcclSettings(**settings)).hops}


def notes(system: System, **settings) -> str:
    return "; ".join(predict_collective(system, "all_reduce", 4096, settings=NcclSettings(**settings)).notes)


@pytest.mark.parametrize(
    ("cpu", "gpus", "reaches"),
    [  # of NCCL 2.5, 2.8, 2.12, 2.22, 2.23, 2.29: ncclTopoCheckP2p and p2pCanConnect in NVIDIA/nccl
        ("amd", 8, "PHB SYS SYS SYS PXB PXB"),
        ("amd", 2, "PHB SYS SYS SYS SYS SYS"),
        ("intel", 8, "PHB PHB PXB PXB PXB PXB"),
        ("intel", 2, "PHB PHB PXB PXB PXB PXB"),
        ("arm", 2, "PHB PXB PXB PXB PXB PXB"),
    ],
)
def test_p2p_default_depends_on_version_and_processor(cpu: str, gpus: int, reaches: str):
    versions = ((2, 5), (2, 8), (2, 12), (2, 22), (2, 23), (2, 29))
    assert " ".join(default_reach(cpu, version, gpus) for version in versions) == reaches


def test_amd_hosts_use_p2p_until_nccl_2_23():
    amd = {**L40S, "cpu": "amd"}
    assert kinds(L40S) == {"shm"} and kinds(amd) == {"p2p_far"}
    assert kinds({**amd, "nccl": "2.23"}) == kinds(amd, version="2.23.4") == {"shm"}
    assert kinds({**amd, "nccl": "2.23", "gpus": 2}) == {"p2p_far"}
    assert kinds({**amd, "gpu": "RTX 4090"}) == {"shm"}, "the driver of GeForce boards refuses"
    assert describe_preset("l40s-pcie", 1, 8).cpu == describe_preset("l40s-pcie-4x", 1, 4).cpu == "amd"


def test_p2p_level_overrides_observed_but_not_rejected_p2p():
    seen, refused = {**L40S, "p2p": False}, {**L40S, "p2p_refused": True}
    for line in (seen, refused):
        assert kinds({**line, "cpu": "amd"}) == kinds({**line, "p2p_level": "SYS"}) == {"shm"}
    assert kinds(seen, p2p_level="SYS") == {"p2p_far"} and kinds(refused, p2p_level="SYS") == {"shm"}
    assert kinds({**L40S, "p2p_level": "SYS"}) == {"p2p_far"}, "a level counts where p2p is not stated"
    with pytest.raises(InputError, match="p2p = true contradicts p2p_refused = true"):
        describe_system("mine", {**L40S, "p2p": True, "p2p_refused": True})


def test_numeric_p2p_level_is_capped_at_the_maximum():
    assert {level_rank(number) for number in ("4", "5", "6", "99")} == {level_rank("SYS")}
    assert kinds(L40S, p2p_level="99") == {"p2p_far"}


def test_notes_name_only_missing_keys_that_matter():
    system = describe_system("mine", L40S)
    assert "p2p is not stated, so Ringlab assumes that GPUs use P2P over PCIe switches, else" in notes(system)
    assert "cpu is not stated, so Ringlab assumes Intel; with an AMD CPU, NCCL 2.21" in notes(system)
    assert "cpu is not stated" not in notes(system, version="2.23")
    for settings in ({"p2p_level": "SYS"}, {"p2p_disable": True}):
        assert "p2p is" not in notes(system, **settings) and "cpu is" not in notes(system, **settings)
    refused = describe_preset("l40s-pcie", 1, 8)
    assert "p2p is" not in notes(refused) and "has no effect" in notes(refused, p2p_level="SYS")
    seen = describe_system("seen", {**L40S, "p2p": False})
    assert "set p2p_refused = true" in notes(seen, p2p_level="SYS") and "p2p_refused" not in notes(seen)
    hosts = {"gpu": "H100 SXM", "gpus": 8, "net": "ib", "nic": 400, "nic_guess": True}
    assert "(nic) is a guess" in notes(describe_system("two", {**hosts, "nodes": 2}))
    assert "(nic) is a guess" not in notes(describe_system("one", {**hosts, "nodes": 1}))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ({"gpu": "A100 SXM", "nodes": 1, "gpus": 8, "nccl": "2.21"}, ()),
        ({"gpu": "T4", "nodes": 1, "gpus": 4, "nccl": "2.21"}, ()),
        ({"gpu": "V100 SXM3", "nodes": 1, "gpus": 16, "nccl": "2.21", "link": "nvswitch"}, ("volta",)),
        ({"gpu": "H100 SXM", "nodes": 1, "gpus": 8, "nccl": "2.99"}, ("NCCL 2.99 (2.0 to 2.31 were)",)),
        ({"machine": "coreweave_gb200", "nodes": 18, "gpus": 4, "nccl": "2.26"}, ()),
        ({"gpu": "H100 SXM", "nodes": 64, "gpus": 8, "net": "ib", "nic": 400, "nccl": "2.21"}, ("64 nodes with ib",)),
        ({"gpu": "A10", "nodes": 2, "gpus": 1, "net": "opa", "nic": 12.5, "nccl": "2.21"}, ("opa between",)),
        ({"gpu": "L40S", "nodes": 1, "gpus": 10, "nccl": "2.21"}, ("10 GPUs of a node with pcie (up to 8 were)",)),
    ],
)
def test_notes_name_system_properties_that_were_not_checked(line: dict, wanted: tuple[str, ...]):
    system = describe_system("mine", line)
    texts = outside_checked(system)
    assert len(texts) == len(wanted) and all(words in text for words, text in zip(wanted, texts, strict=True)), texts
    assert ("was checked" in notes(system)) is bool(wanted)
