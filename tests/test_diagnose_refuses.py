"""Hostile and broken files are refused in one line that names the file, and the line where there is one."""

import gzip
import json
import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pasted_files import NCCL_LOG, dgx_matrix, dgx_xml, nccl_tests, write

from collectives.errors import InputError
from simcomm.diagnosis.evidence.facts import LoggedHop
from simcomm.diagnosis.reading import read_facts

BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;&a;">]><system>&b;</system>'
TABLE = nccl_tests(["n0"], 2, "A100", [(2**20, 10.0)])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bomb.xml", BOMB, "declares a document type or entity"),
        ("other.xml", "<html></html>", "is no XML of NCCL's"),
        ("cut.xml", dgx_xml()[:900], "not XML"),
        ("deep.xml", "<system>" * 100, "nested"),
        ("number.xml", '<system><pci class="0x0302" link_width="wide"/></system>', "link_width = 'wide' is no number"),
        ("topo.txt", "\n".join(dgx_matrix().splitlines()[:5]), "16 devices, and 4 rows below"),
        ("topo.txt", dgx_matrix().replace("NV18", "WIFI"), "line 2: the row of GPU0"),
        ("table.txt", TABLE.replace("float sum -1", "float sum -1 7"), "line 6: .* cells; the columns are"),
        ("table.txt", TABLE.replace("10.0000", "99.0000"), "line 6: algbw 99"),
        ("nccl.log", "n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] v", "line 1: .* is cut off"),
        ("pairs.txt", "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n D\\D 0 1\n 0 1.0 2.0\n", "is not square"),
        ("nested.json", "[" * 10_000, "nothing in it is known"),
        ("nested.json", '{"a":' * 100_000, "not JSON"),
        ("twice.json", '{"entries": [], "entries": []}', "there twice"),
        ("other.json", '{"entries": 3}', "JSON of another kind"),
        ("trace_rank_0.json", '{"version": "2", "entries": [3]}', "entry 0 is 3"),
        ("dump.json", json.dumps({"version": "2", "entries": [{}]}), "which rank's"),
        ("words.txt", "it is slow, please help\n", "nothing in it is known"),
        ("long.txt", "x" * 300_000, "nothing in it is known"),
        ("empty.txt", "", "nothing in it is known"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(InputError, match=message) as caught:
        read_facts([path])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_log_that_ends_within_its_last_line_is_read(tmp_path: Path) -> None:
    cut = "n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] v"
    facts = read_facts([write(tmp_path, "nccl.log", f"{NCCL_LOG.format(gdr='')}{cut}")])
    assert len(facts.of(LoggedHop)) == 3
    with pytest.raises(InputError, match=r"line 12: .* is cut off"):
        read_facts([write(tmp_path, "nccl.log", f"{NCCL_LOG.format(gdr='')}{cut}\n{NCCL_LOG}")])


def test_a_pickle_is_refused_with_the_command_that_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": []}))
    with pytest.raises(InputError, match=r"a pickle, which can run programs and is not read; .*json\.dump"):
        read_facts([path])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x7fELF\0\0", "a binary file"), (b"caf\xe9\n", "line 1 is not UTF-8"), (b"a\n\xff", "line 2 is not UTF-8")],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_facts([path])


def test_a_packed_bomb_and_a_large_file_are_refused(tmp_path: Path) -> None:
    packed = tmp_path / "rank0.json.gz"
    packed.write_bytes(gzip.compress(b" " * (257 << 20), compresslevel=1))
    with pytest.raises(InputError, match="more than 268,435,456 bytes in it"):
        read_facts([packed])
    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(InputError, match="too large: 65 MiB, 64 MiB at most"):
        read_facts([large])


@given(
    st.text(max_size=400) | st.sampled_from([TABLE, dgx_matrix(), dgx_xml()]), st.integers(0, 3000), st.text(max_size=8)
)
@settings(max_examples=150, deadline=None)
def test_no_text_makes_anything_but_facts_or_a_refusal(text: str, at: int, put: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pasted.txt")
        path.write_text(text[:at] + put + text[at + 1 :], encoding="utf-8", errors="replace")
        try:
            read_facts([path])
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "word", ["connect ", "LnkCap: Speed ", "Rank 1 is running collective: ", "-x NCCL_A=", "WorkNCCL("]
)
def test_lines_that_patterns_could_look_at_for_long_are_read_in_seconds(tmp_path: Path, word: str) -> None:
    path = write(tmp_path, "slow.txt", "\n".join([word * (19_000 // len(word))] * 40 + ["NCCL version 2.21.5"]))
    began = time.process_time()
    read_facts([path])
    assert time.process_time() - began < 10
