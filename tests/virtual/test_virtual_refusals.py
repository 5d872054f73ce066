"""Virtual ranks reject what gloo and NCCL reject: on every rank, and with torch's exception."""

from pathlib import Path

import pytest
from virtual_runs import VirtualRuns
from warm_ranks import run_ranks

from collectives.errors import InputError

PROGRAMS = Path(__file__).parent / "virtual_programs"


def test_virtual_gloo_rejects_the_same_calls_as_real_gloo(virtual: VirtualRuns, tmp_path: Path) -> None:
    ran = virtual(PROGRAMS / "refusals.py", 2)
    lines = sorted(line for rank in range(2) for line in ran.lines(rank))
    on_gloo = [line for _, out, _ in run_ranks(2, tmp_path, PROGRAMS / "refusals.py") for line in out.splitlines()]
    assert len(lines) > 300 and sum("Error" in line for line in lines) > 100
    assert lines == sorted(on_gloo) and ran.outcome.findings == ()


START = "import torch, torch.distributed as dist\ndist.init_process_group()\nrank = dist.get_rank()\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dist.all_reduce(torch.ones(4, dtype=torch.int16))", "TypeError: Input tensor data type is not supported"),
        ("dist.all_reduce(torch.ones(4).to(torch.float8_e5m2fnuz))", "TypeError: Unsupported Float8 type"),
        ("dist.broadcast(torch.ones(4, dtype=torch.uint16), 0)", "NCCL process group: UInt16"),
        ("dist.all_reduce(torch.ones(3, 4).t())", "ValueError: Tensors must be contiguous"),
        ("dist.all_gather_into_tensor(torch.ones(4, 2)[:, 0], torch.ones(2))", "Tensors must be contiguous"),
        ("dist.send(torch.ones(3, 4).t(), 1) if rank == 0 else dist.recv(torch.ones(4, 3), 0)", "be contiguous"),
        ("dist.all_reduce(torch.ones(4).int(), dist.ReduceOp.BXOR)", "ValueError: Cannot use ReduceOp.BXOR with NCCL"),
        ("dist.all_reduce(torch.ones(4) > 0, dist.ReduceOp.AVG)", "TypeError: Cannot use ReduceOp.AVG"),
        ("dist.all_reduce(torch.eye(3).to_sparse())", "ValueError: Tensors must be CUDA and dense"),
        ("dist.recv(torch.ones(1)) if rank == 0 else dist.send(torch.ones(1), 0)", "does not support recvAnysource"),
        ("dist.reduce_scatter_tensor(torch.ones(2), torch.ones(5))", "must be the same size as output size times"),
    ],
)
def test_nccl_restrictions_apply_under_as_nccl(virtual: VirtualRuns, tmp_path: Path, call: str, message: str) -> None:
    (tmp_path / "refused.py").write_text(START + call + "\n")
    (finding,) = virtual(tmp_path / "refused.py", 2, acts_as="nccl").outcome.findings
    assert finding.kind == "exception" and message in finding.text and "refused.py:4" in finding.text
    assert "change them" in finding.advice


def test_nccl_rules_allow_calls_that_gloo_rejects(virtual: VirtualRuns, tmp_path: Path) -> None:
    text = (
        "x = torch.ones(4, dtype=torch.int32) + rank\ndist.all_reduce(x, dist.ReduceOp.AVG)\n"
        "y = torch.ones(2, 2)\ndist.all_gather_into_tensor(y, torch.ones(2) + rank)\n"
        "z = (torch.ones(2) + rank).to(torch.float8_e4m3fn)\ndist.all_reduce(z)\n"
        "print(x.tolist(), y.tolist(), z.float().tolist())\n"
    )
    (tmp_path / "allowed.py").write_text(START + text)
    ran = virtual(tmp_path / "allowed.py", 2, acts_as="nccl")
    assert ran.lines(1) == ["[1, 1, 1, 1] [[1.0, 1.0], [2.0, 2.0]] [3.0, 3.0]"] and ran.outcome.findings == ()


@pytest.mark.parametrize("wait", ["dist.all_reduce(x, MEAN)", "dist.all_reduce(x, MEAN, async_op=True).wait()"])
def test_error_during_reduction_is_raised_on_every_rank(virtual: VirtualRuns, tmp_path: Path, wait: str) -> None:
    text = (
        "MEAN = dist.ReduceOp.AVG\nx = torch.ones(2, dtype=torch.complex32)\n"
        f"try:\n    dist.reduce(x, 0, MEAN)\nexcept Exception as error:\n    print(type(error).__name__)\n"
        f"x = torch.ones(2)\n{wait}\nprint(x.tolist())\n"
    )
    (tmp_path / "half.py").write_text(START + text)
    ran = virtual(tmp_path / "half.py", 2)
    assert [ran.lines(rank) for rank in range(2)] == [["NotImplementedError", "[1.0, 1.0]"]] * 2, ran.outcome.findings


def test_communication_in_a_thread_is_rejected(virtual: VirtualRuns, tmp_path: Path) -> None:
    text = "import threading\nthread = threading.Thread(target=dist.barrier)\nthread.start()\nthread.join()\n"
    (tmp_path / "thread.py").write_text(START + text)
    with pytest.raises(InputError, match="a thread communicates"):
        virtual(tmp_path / "thread.py", 2)
