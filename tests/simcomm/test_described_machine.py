"""Files of a machine describe the same machine as the catalog, and other commands accept the written scenario."""

from pathlib import Path

import pytest
from pasted_files import NCCL_LOG, dgx_matrix, dgx_xml, gpus_listed, nccl_tests, topo_matrix, workstation_matrix, write

import ringlab
from collectives.errors import InputError
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.measured.calibration import HARDWARE


def hardware(system: object) -> dict[str, object]:
    """Return everything that determines a system's time, except the software that runs on it."""
    return {key: getattr(system, key) for key in (*HARDWARE, "gpu", "cpu")}


def test_dgx_h100_files_describe_the_catalog_machine(tmp_path: Path) -> None:
    files = [
        write(tmp_path, "topo.txt", dgx_matrix()),
        write(tmp_path, "system.xml", dgx_xml()),
        write(tmp_path, "gpus.txt", gpus_listed("NVIDIA H100 80GB HBM3", 8)),
    ]
    answer = ringlab.describe(files)
    assert hardware(answer.system) == hardware(describe_preset("dgx-h100", 1, 8))
    assert not any("guess" in origin for origin in answer.origins.values())


def test_workstation_files_describe_the_catalog_machine(tmp_path: Path) -> None:
    files = [
        write(tmp_path, "topo.txt", workstation_matrix()),
        write(tmp_path, "gpus.txt", gpus_listed("NVIDIA GeForce RTX 4090", 4)),
        write(tmp_path, "table.txt", nccl_tests(["w"], 4, "NVIDIA GeForce RTX 4090", [(2**28, 9.0)], per_gpu=False)),
    ]
    system = ringlab.describe(files).system
    assert hardware(system) == hardware(describe_preset("rtx4090-pcie-4x", 1, 4))
    assert system.procs == "single"


def test_nvlink_bridges_are_described(tmp_path: Path) -> None:
    pairs = {(0, 1), (1, 0), (2, 3), (3, 2)}
    cells = [["X" if a == b else "NV4" if (a, b) in pairs else "PHB" for b in range(4)] for a in range(4)]
    files = [
        write(tmp_path, "topo.txt", topo_matrix(cells, [f"GPU{gpu}" for gpu in range(4)])),
        write(tmp_path, "gpus.txt", gpus_listed("NVIDIA GeForce RTX 3090", 4)),
    ]
    assert hardware(ringlab.describe(files).system) == hardware(describe_preset("rtx3090-nvlink-4x", 1, 4))


def test_described_scenario_runs_and_marks_guesses(tmp_path: Path) -> None:
    log = write(tmp_path, "nccl.log", NCCL_LOG.format(gdr="/GDRDMA"))
    table = write(tmp_path, "table.txt", nccl_tests(["n0", "n1"], 8, "NVIDIA H100 80GB HBM3", [(2**30, 90.0)]))
    answer = ringlab.describe([log, table])
    path = write(tmp_path, "machine.toml", answer.toml)
    scenario = ringlab.load(str(path))
    assert scenario.cluster.world_size == 16
    assert scenario.predict().collectives[-1].time_s > 0
    lines = answer.toml.splitlines()
    assert [line for line in lines if line.startswith("nic = ")] == [
        'nic = "100.0 GB/s"  # guess: 2 NICs, as usual with H100 SXM'
    ]
    assert f'nccl = "2.21"  # {log}:2' in lines
    assert f"gdr = true  # {log}:7" in lines


def test_described_scenario_contains_observed_nccl_settings(tmp_path: Path) -> None:
    text = NCCL_LOG.format(gdr="") + "n0:10:20 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n"
    log = write(tmp_path, "nccl.log", text)
    listed = write(tmp_path, "gpus.txt", gpus_listed("NVIDIA A100-SXM4-80GB", 8))
    answer = ringlab.describe([log, listed], keys=["nic=1600 Gbit/s"])
    assert (answer.system.gdr, answer.system.nic, answer.system.nodes) == (False, 200.0, 2)
    assert 'NCCL_ALGO = "Ring"' in answer.toml
    assert 'nic = "1600 Gbit/s"  # as you say' in answer.toml


def test_hosts_are_counted_from_the_communicator_line(tmp_path: Path) -> None:
    begun = "n0:10:20 [0] NCCL INFO comm 0x55aa rank 0 nranks 16 cudaDev 0 busId 7000 - Init START\n"
    log = begun + NCCL_LOG.format(gdr="/GDRDMA")
    system = ringlab.describe([write(tmp_path, "new.log", log)], keys=['gpu="H100 SXM"']).system
    assert (system.nodes, system.gpus) == (2, 8)
    of_old_nccl = write(tmp_path, "old.log", log.replace(" nNodes 2 localRanks 8", "").replace("n1:11", "n0:11"))
    with pytest.raises(InputError, match="the number of GPUs and hosts is unknown"):
        ringlab.describe([of_old_nccl], keys=['gpu="H100 SXM"'])


def test_missing_gpu_is_reported_with_the_option(tmp_path: Path) -> None:
    topo = write(tmp_path, "topo.txt", workstation_matrix())
    with pytest.raises(InputError, match="no file names the GPU; pass for example --set"):
        ringlab.describe([topo])
