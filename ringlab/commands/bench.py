"""The command ``ringlab bench``, with nccl-tests' options."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from collectives.variables import is_first_rank
from ringlab.shared.console import make_console
from ringlab.shared.output import check_outputs, write_files, write_json
from ringlab.shared.signals import INTERRUPTED

if TYPE_CHECKING:
    from ringlab.answers.benchmark import Benchmark
    from ringlab.terminal.bench_table import BenchTable


def bench(
    begin: Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="Smallest size: 8, 32K, 1M.")] = "1K",
    end: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Largest size.")] = "16M",
    factor: Annotated[float, typer.Option("-f", "--stepfactor", help="From one size to the next.")] = 4.0,
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Repetitions of each.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup_iters", min=0, help="Repetitions before those.")] = 5,
    check: Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="Count wrong elements: 0 or 1.")] = 1,
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of this machine.")] = 2,
    collective: Annotated[str, typer.Option(metavar="NAME", help="Such as all_reduce.")] = "all_reduce",
    algorithm: Annotated[
        list[str] | None, typer.Option(metavar="NAME|FILE.py:NAME|auto", help="Can be repeated; else the usual one.")
    ] = None,
    dtype: Annotated[str, typer.Option("-d", "--dtype", metavar="TYPE")] = "float32",
    op: Annotated[str, typer.Option("-o", "--op", metavar="OP", help="sum, mean, min, max or product.")] = "sum",
    root_rank: Annotated[int, typer.Option("-r", "--root", min=0, metavar="RANK")] = 0,
    backend: Annotated[str, typer.Option(metavar="gloo|nccl", help="What torch.distributed sends with.")] = "gloo",
    emulate: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="Build this scenario's network here, and run its ranks on it."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="End the run after so long.")] = 600.0,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - for standard output.")
    ] = None,
) -> None:
    """Measure collectives in the table of nccl-tests, beside their prediction. ^C keeps what is done."""
    from ringlab.answers.benchmark import BenchOptions, prepare
    from ringlab.terminal.bench_table import BenchTable
    from scenarios import load

    options = BenchOptions(
        collective=collective,
        algorithms=tuple(algorithm or ()),
        ranks=ranks,
        begin=begin,
        end=end,
        factor=factor,
        iterations=iterations,
        warmup=warmup,
        check=bool(check),
        dtype=dtype,
        op=op,
        root=root_rank,
    )
    benchmark = prepare(options, backend=backend, timeout=timeout, emulated=None if emulate is None else load(emulate))
    check_outputs(json_to)
    table = BenchTable(benchmark, make_console(quiet=json_to == "-" or not is_first_rank()))
    _measure(benchmark, table, json_to)


def _measure(benchmark: "Benchmark", table: "BenchTable", json_to: str | None) -> None:
    """Run a benchmark, print its table meanwhile and write the answer. Raise Exit where something is amiss."""
    unshown: list[OSError] = []

    def show(print_it: Callable[..., None], *of: object) -> None:
        """Print a part of the table; once that fails the rest is for the file, and without one the command ends."""
        try:
            if not unshown:
                print_it(*of)
        except OSError as error:
            if json_to is None:
                raise
            unshown.append(error)

    show(table.show_head)
    answer = benchmark.run(partial(show, table.show_row))
    show(table.show_foot, answer)
    if is_first_rank():
        write_files(partial(write_json, answer, json_to))
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)
    if unshown:
        raise unshown[0]
    if answer.wrong:
        raise typer.Exit(1)
