"""Files of a machine describe the machine of the catalog. Hostile and broken files are rejected in one line."""

import gzip
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_tests_output import table
from pasted_files import NCCL_LOG, dgx_matrix, dgx_xml, gpus_listed, topo_matrix, workstation_matrix, write

import ringlab
from collectives.errors import InputError
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.machine_files.facts import LoggedHop, MeasuredRun
from simcomm.nccl.machine_files.files import read_facts
from simcomm.nccl.measured.calibration import HARDWARE

BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;&a;">]><system>&b;</system>'
TABLE = table([(2**20, 10.0)], gpus=2, per_process=1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bomb.xml", BOMB, "declares a document type or entity"),
        ("other.xml", "<html></html>", ":1: <html> is not NCCL's topology"),
        ("cut.xml", dgx_xml()[:900], "not XML"),
        ("deep.xml", "<system>" * 100, "nested"),
        ("number.xml", '<system><pci class="0x0302" link_width="wide"/></system>', "link_width = 'wide' is not a num"),
        ("topo.txt", "\n".join(dgx_matrix().splitlines()[:5]), ":1: the table has 16 columns, but only 4 rows"),
        ("topo.txt", dgx_matrix().replace("NV18", "WIFI"), ":2: the row of GPU0"),
        ("other.json", "{}", "the format is not known or the file is empty"),
        (
            "words.txt",
            "it is slow, please help\n",
            "the format is not known or the file is empty; pass the output of nccl-tests",
        ),
        ("long.txt", "x" * 300_000, "the format is not known or the file is empty"),
        ("empty.txt", "", "the format is not known or the file is empty"),
    ],
)
def test_invalid_machine_file_is_rejected_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(InputError, match=message) as caught:
        read_facts([path])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_truncated_log_line_is_ignored(tmp_path: Path) -> None:
    cut = "n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] v"
    facts = read_facts([write(tmp_path, "nccl.log", f"{NCCL_LOG.format(gdr='')}{cut}\n{NCCL_LOG}")])
    assert len(facts.of(LoggedHop)) == 6


def test_binary_and_oversized_machine_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InputError, match="a binary file"):
        read_facts([tmp_path / "binary"])
    packed = tmp_path / "rank0.txt.gz"
    packed.write_bytes(gzip.compress(b" " * (65 << 20), compresslevel=1))
    with pytest.raises(InputError, match="more than 67,108,864 bytes"):
        read_facts([packed])
    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(InputError, match="too large: 65 MiB; the maximum is 64 MiB"):
        read_facts([large])


@given(
    st.text(max_size=400) | st.sampled_from([TABLE, dgx_matrix(), dgx_xml()]), st.integers(0, 3000), st.text(max_size=8)
)
@settings(max_examples=150, deadline=None)
def test_machine_file_of_any_text_is_read_or_rejected(text: str, at: int, put: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pasted.txt")
        path.write_text(text[:at] + put + text[at + 1 :], encoding="utf-8", errors="replace")
        try:
            read_facts([path])
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "word", ["LnkCap: Speed ", "-x NCCL_A=", "8 2 float ", "1,", "Rank 0 Pid 1 on ", "size busbw | "]
)
def test_machine_file_with_long_lines_is_read_in_seconds(tmp_path: Path, word: str) -> None:
    path = write(tmp_path, "slow.txt", "\n".join([word * (19_000 // len(word))] * 8 + ["NCCL version 2.21.5"]))
    began = time.process_time()
    read_facts([path])
    assert time.process_time() - began < 3


def test_utf_16_files_gzip_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "gpus.txt.gz").write_bytes(gzip.compress(gpus_listed("NVIDIA H100 80GB HBM3", 8).encode()))
    (tmp_path / "topo.txt").write_bytes(dgx_matrix().replace("\n", "\r\n").encode("utf-16"))
    system = ringlab.describe([tmp_path]).system
    assert (system.gpu.name, system.gpus, system.link) == ("H100 SXM", 8, "nvswitch")


def test_nccl_tests_output_without_rows_still_states_its_ranks(tmp_path: Path) -> None:
    path = write(tmp_path, "started.txt", TABLE.partition("#       size")[0])
    (table,) = read_facts([path]).of(MeasuredRun)
    assert (table.run.ranks, table.run.rows, table.place.line) == (2, (), 6)


def hardware(system: object) -> dict[str, object]:
    """Return everything that determines a system's time, except the software that runs on it."""
    return {key: getattr(system, key) for key in (*HARDWARE, "gpu", "cpu")}


BRIDGED = {(0, 1), (1, 0), (2, 3), (3, 2)}
BRIDGES = [["X" if a == b else "NV4" if (a, b) in BRIDGED else "PHB" for b in range(4)] for a in range(4)]


@pytest.mark.parametrize(
    ("preset", "gpu", "gpus", "texts"),
    [
        ("dgx-h100", "NVIDIA H100 80GB HBM3", 8, {"topo.txt": dgx_matrix(), "system.xml": dgx_xml()}),
        ("rtx4090-pcie-4x", "NVIDIA GeForce RTX 4090", 4, {"topo.txt": workstation_matrix()}),
        ("rtx3090-nvlink-4x", "NVIDIA GeForce RTX 3090", 4,
         {"topo.txt": topo_matrix(BRIDGES, [f"GPU{gpu}" for gpu in range(4)])}),
    ],
)  # fmt: skip
def test_topology_files_describe_the_machine_of_the_catalog(
    tmp_path: Path, preset: str, gpu: str, gpus: int, texts: dict[str, str]
) -> None:
    named = {
        **texts,
        "gpus.txt": gpus_listed(gpu, gpus),
        "t.txt": table([(2**28, 45e3)], gpus=gpus, per_process=gpus, gpu=gpu),
    }
    answer = ringlab.describe([write(tmp_path, name, text) for name, text in named.items()])
    assert hardware(answer.system) == hardware(describe_preset(preset, 1, gpus))
    assert answer.system.procs == "single"
    assert preset != "dgx-h100" or not any("guess" in origin for origin in answer.origins.values())


def test_described_scenario_can_be_predicted_and_marks_guesses(tmp_path: Path) -> None:
    log = write(tmp_path, "nccl.log", NCCL_LOG.format(gdr="/GDRDMA"))
    measured = table([(2**30, 22e3)], hosts=2, per_process=1, gpu="NVIDIA H100 80GB HBM3")
    answer = ringlab.describe([log, write(tmp_path, "table.txt", measured)])
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
    assert 'nic = "1600 Gbit/s"  # set by you' in answer.toml


def test_number_of_hosts_is_read_from_the_nccl_communicator_line(tmp_path: Path) -> None:
    begun = "n0:10:20 [0] NCCL INFO comm 0x55aa rank 0 nranks 16 cudaDev 0 busId 7000 - Init START\n"
    log = begun + NCCL_LOG.format(gdr="/GDRDMA")
    system = ringlab.describe([write(tmp_path, "new.log", log)], keys=['gpu="H100 SXM"']).system
    assert (system.nodes, system.gpus) == (2, 8)
    of_old_nccl = write(tmp_path, "old.log", log.replace(" nNodes 2 localRanks 8", "").replace("n1:11", "n0:11"))
    with pytest.raises(InputError, match="the number of GPUs and hosts is unknown"):
        ringlab.describe([of_old_nccl], keys=['gpu="H100 SXM"'])


def test_describe_without_a_gpu_name_suggests_an_option(tmp_path: Path) -> None:
    topo = write(tmp_path, "topo.txt", workstation_matrix())
    with pytest.raises(InputError, match="no file names the GPU; pass for example --set"):
        ringlab.describe([topo])
