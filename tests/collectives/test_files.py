"""Check reading and writing of files: kinds, permissions, failures, and messages."""

import errno
import json
import os
import socket
import stat
import subprocess
import sys
from functools import partial
from io import StringIO
from math import inf, nan
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

import ringlab as ringlab_package
from collectives import InputError, read_trace
from collectives.input_files import inputs_protected, read_bytes
from collectives.output_files import check_output, write_text
from collectives.quoting import make_printable
from ringlab.cli import app
from ringlab.shared.output import make_console, write_files, write_json
from ringlab.shared.progress import TerminalProgress


def test_replaced_file_keeps_its_permissions(tmp_path: Path):
    file = tmp_path / "a.json"
    write_text(file, "old")
    file.chmod(0o640)
    write_text(file, "new")
    assert file.read_text() == "new" and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_new_file_respects_the_umask(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.json", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("target", ["there", "not there"])
def test_write_follows_links(tmp_path: Path, target: str):
    (tmp_path / "there").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink() and (tmp_path / target).read_text() == "new"


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_special_files_are_not_written(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "out"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/null")
    else:
        with socket.socket(socket.AF_UNIX) as own:
            own.bind(str(file))
    for refuse in (check_output, lambda path: write_text(path, "x")):
        with pytest.raises(InputError, match=f"out is a {kind}; name a file to write"):
            refuse(file)


def test_full_disk_leaves_the_file_unchanged(tmp_path: Path, full_disk: None) -> None:
    file = tmp_path / "a.json"
    file.touch()
    with pytest.raises(OSError, match="No space left on device") as error:
        write_text(file, "x")
    assert error.value.filename == str(file) and file.read_text() == "" and [*tmp_path.iterdir()] == [file]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("collectives.output_files.os.fdopen", fail)


UNWRITABLE = {
    "is a directory; name a file to write": ".",
    "the kernel makes up what is in /proc": "/proc/new",
    "cannot be written: File name too long": "n" * 300,
    "cannot be written: Not a directory": "file/new",
    "cannot be written: embedded null": "a\0b",
    "Too many levels of symbolic links": "loop",
}


@pytest.mark.parametrize("message", UNWRITABLE)
def test_unwritable_paths_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("precious")
    Path("loop").symlink_to("loop")
    for refuse in (check_output, lambda path: write_text(path, "x")):
        with pytest.raises(InputError, match=message):
            refuse(UNWRITABLE[message])
    assert Path("file").read_text() == "precious"


def test_inputs_are_not_overwritten(tmp_path: Path):
    file = tmp_path / "a.toml"
    file.write_text("precious")
    (tmp_path / "link").symlink_to("a.toml")
    (tmp_path / "hard").hardlink_to(file)
    with inputs_protected():
        read_bytes(file, 100)
        for name in ("a.toml", "link", "hard", "../" + tmp_path.name + "/a.toml"):
            with pytest.raises(InputError, match="is read by this command"):
                write_text(tmp_path / name, "x")
    write_text(file, "x")


ROW = '{"key": "k", "what": "a prediction of a sweep", "seconds": 1.0}'


@pytest.mark.parametrize(
    ("there", "left"),
    [
        (f"{ROW}\n", f"{ROW}\n"),
        (ROW, f"{ROW}\n"),
        (f"{ROW}\n{ROW[:30]}", f"{ROW}\n"),
        (f"{ROW}\n{ROW[:3]}", f"{ROW}\n"),
        ("precious, and no end of line", None),
        (f"precious\n{ROW[:30]}", None),
        (f"{ROW}\nprecious", None),
        ('{"key": "mine", "note": "precious"}', None),
        (f'{ROW}\n{{"key": "mine"}} precious', None),
        (f"{ROW}\n\n", None),
        (ROW.replace("1.0", "1" + "0" * 400) + "\n", None),
        (ROW.replace("1.0", "true") + "\n", None),
    ],
)
def test_only_an_incomplete_last_line_is_removed(there: str, left: str | None, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text(there)
    with nullcontext() if left is not None else pytest.raises(InputError, match=r"kept, line \d: .* pass another file"):
        SweepFile(file, [])
    assert file.read_text() == (there if left is None else left)


@pytest.mark.parametrize("command", ["doctor", "list", "profile resnet18", "check all_reduce/ring", "list hardware"])
def test_command_rejects_a_pipe_before_work(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = CliRunner().invoke(app, [*command.split(), "--json", str(tmp_path / "pipe")])
    assert isinstance(done.exception, InputError) and not done.stdout


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/dev/zero", "is a device"),
        ("/proc/self/maps", "generated by the kernel"),
        ("pipe", "is a pipe"),
        (".", "is a directory"),
        ("large", "is too large: 1024 MiB, 64 MiB at most"),
        ("none", "no such file"),
        ("a\0b", "embedded null"),
    ],
)
def test_only_regular_files_of_limited_size_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("large").touch()
    os.truncate("large", 1 << 30)
    with pytest.raises(InputError, match=message):
        read_bytes(Path(path))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✓ é 漢字", "plain ✓ é 漢字"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("a\nb\r", "a\\nb\\r"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str):
    assert make_printable(text) == shown
    assert len(make_printable("a" * 10**6)) < 1100


def test_markup_in_a_title_is_not_interpreted(ringlab, tmp_path: Path):
    file = tmp_path / "a.toml"
    file.write_text("""title = "[red]r[/] :smile:"
[cluster]
topology = "star"
hosts = 2
bandwidth = "1 Gbit/s"
latency = "1 us"
[[what_if]]
title = "[bold]b[/]"
[what_if.faults]
rank = [{ rank = 1, slowdown = 2.0 }]
[collective]
name = "all_reduce"
algorithms = "ring"
sizes = "1 KiB"
""")
    status, out, _ = ringlab("predict", file)
    assert status == 0 and "\x1b" not in out
    assert "[red]r[/] :smile:" in out and "[bold]b[/]" in out


def test_answer_is_shown_when_files_cannot_be_written(ringlab, tmp_path: Path, full_disk: None) -> None:
    json_to, trace = tmp_path / "a.json", tmp_path / "a.trace.json"
    status, out, err = ringlab("predict", "star8", "--json", json_to, "--trace", trace)
    said = "No space left on device"
    assert (status, err) == (1, f"ringlab: {json_to}: {said}\n{trace}: {said}\n")
    assert "Collectives" in out


@pytest.mark.parametrize(
    ("arguments", "full", "status", "said"),
    [
        (["predict", "star8"], "stdout", 1, "ringlab: standard output: No space left on device\n"),
        (["predict", "star8", "--json", "-"], "stdout", 1, "ringlab: standard output: No space left on device\n"),
        (["predict", "star88"], "stderr", 2, ""),
    ],
)
def test_full_output_stream_is_reported(arguments: list[str], full: str, status: int, said: str):
    with Path("/dev/full").open("w") as device:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, full: device}
        environment = {**os.environ, "PYTHONPATH": str(Path(ringlab_package.__file__).parents[1])}
        call = [sys.executable, "-m", "ringlab", *arguments]
        done = subprocess.run(call, **streams, env=environment, timeout=60, check=False, text=True)
    assert (done.returncode, done.stderr or "") == (status, said)


def test_files_are_written_when_stdout_is_closed(tmp_path: Path):
    """As with ``ringlab predict star8 --json a.json 2>&1 | head -1``."""
    read, write = os.pipe()
    os.close(read)
    call = [sys.executable, "-m", "ringlab", "predict", "star8", "--json", "a.json", "--trace", "a.trace.json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(ringlab_package.__file__).parents[1])}
    done = subprocess.run(call, cwd=tmp_path, stdout=write, stderr=write, env=environment, timeout=60, check=False)
    os.close(write)
    assert done.returncode == 1  # the answer was not shown
    assert len(json.loads((tmp_path / "a.json").read_text())["collectives"]) == 10
    assert len(read_trace(tmp_path / "a.trace.json").messages) > 0


def test_closed_stdout_hides_no_write_failure():
    def fail(*arguments: object) -> None:
        raise OSError(*arguments)

    gone = partial(fail, errno.EPIPE, "Broken pipe")
    with pytest.raises(OSError, match="left") as error:
        write_files(gone, partial(fail, errno.ENOSPC, "No space left", "a"), partial(fail, errno.EACCES, "Denied", "b"))
    assert (error.value.filename, error.value.__notes__) == ("a", ["b: Denied"])
    with pytest.raises(BrokenPipeError):
        write_files(gone, gone)


def test_full_stderr_does_not_stop_the_answer(monkeypatch):
    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("stderr", "stdout"):
        monkeypatch.setattr(sys, name, Full())
    progress = TerminalProgress(make_console(stderr=True))
    progress.note("this is said to nobody")
    with progress.task("no more is this") as tick:
        tick(0, 1, 2, "half")
    with pytest.raises(OSError, match="No space left"):
        make_console().print("an answer")


def test_two_outputs_must_be_different_files(ringlab, tmp_path: Path):
    status, _, err = ringlab("predict", "star8", "--json", tmp_path / "a", "--trace", tmp_path / "." / "a")
    assert status == 2 and "are the same file; use different files" in err
    assert not (tmp_path / "a").exists()


def test_invalid_suffix_is_rejected_before_measuring(ringlab, tmp_path: Path):
    here = tmp_path / "here.toml"
    here.write_text(
        '[cluster]\npreset = "this-machine"\n[collective]\nname = "all_reduce"\nalgorithms = "ring"\nsizes = "1 KiB"\n'
    )
    status, _, err = ringlab("compare", here, "--report", tmp_path / "x.txt")
    assert (status, "calibrating" in err) == (2, False)
    assert "x.txt: a report is written as .html or .htm, not '.txt'" in err


def test_link_into_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "no" / "out.json")
    with pytest.raises(InputError, match=r"a link to .*out\.json, whose directory does not exist"):
        check_output(tmp_path / "link")
    assert not (tmp_path / "no").exists()


def test_json_answer_rejects_infinity_and_nan(tmp_path: Path) -> None:
    answer = Mock()
    answer.to_dict.return_value = {"rows": [{"rate": 1.0}, {"rate": -inf}]}
    with pytest.raises(InputError, match="too large for a float"):
        write_json(answer, str(tmp_path / "a.json"))
    answer.to_dict.return_value = {"rows": [{"rate": nan}]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(answer, str(tmp_path / "a.json"))
    assert not (tmp_path / "a.json").exists()
