"""Hostile and broken files are rejected with one line that names the file and, if possible, the line."""

import gzip
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pasted_files import NCCL_LOG, dgx_matrix, dgx_xml, gpus_listed, nccl_tests, write

import ringlab
from collectives.errors import InputError
from simcomm.nccl.machine_files.facts import LoggedHop, MeasuredRun
from simcomm.nccl.machine_files.files import read_facts

BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;&a;">]><system>&b;</system>'
TABLE = nccl_tests(["n0"], 2, "A100", [(2**20, 10.0)])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bomb.xml", BOMB, "declares a document type or entity"),
        ("other.xml", "<html></html>", ":1: <html> is not NCCL's topology"),
        ("cut.xml", dgx_xml()[:900], "not XML"),
        ("deep.xml", "<system>" * 100, "nested"),
        (
            "number.xml",
            '<system><pci class="0x0302" link_width="wide"/></system>',
            "link_width = 'wide' is not a number",
        ),
        (
            "topo.txt",
            "\n".join(dgx_matrix().splitlines()[:5]),
            ":1: 16 devices, but only 4 rows follow",
        ),
        ("topo.txt", dgx_matrix().replace("NV18", "WIFI"), ":2: the row of GPU0"),
        ("nested.json", '{"a":' * 100_000, "not JSON"),
        ("other.json", '{"entries": 3}', "'config' is missing"),
        ("words.txt", "it is slow, please help\n", "contains no facts about a machine; pass the output of nccl-tests"),
        ("long.txt", "x" * 300_000, "contains no facts about a machine"),
        ("empty.txt", "", "contains no facts about a machine"),
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


def test_binary_machine_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InputError, match="a binary file"):
        read_facts([path])


def test_large_and_packed_files_are_rejected(tmp_path: Path) -> None:
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


def test_utf_16_packed_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "gpus.txt.gz").write_bytes(gzip.compress(gpus_listed("NVIDIA H100 80GB HBM3", 8).encode()))
    (tmp_path / "topo.txt").write_bytes(dgx_matrix().replace("\n", "\r\n").encode("utf-16"))
    system = ringlab.describe([tmp_path]).system
    assert (system.gpu.name, system.gpus, system.link) == ("H100 SXM", 8, "nvswitch")


def test_nccl_tests_run_without_rows_describes_its_machine(tmp_path: Path) -> None:
    path = write(tmp_path, "started.txt", "\n".join(TABLE.splitlines()[:4]))
    (table,) = read_facts([path]).of(MeasuredRun)
    assert (table.run.ranks, table.run.rows, table.place.line) == (2, (), 3)
