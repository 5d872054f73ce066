"""``ringlab virtual``: a program of torch.distributed on virtual ranks: how long, who waits, what hangs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand

from collectives.errors import InputError
from collectives.quoting import make_printable
from collectives.units import parse_latency
from realcomm.launching.torch_process import check_torch
from ringlab.commands.virtual_answer import VirtualAnswer
from ringlab.shared.clusters import find_cluster
from ringlab.shared.options import AnswerOptions, with_groups
from ringlab.shared.output import check_outputs, deliver
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.topologies import star
from virtual.hosting.host import VirtualHost, show_on_own
from virtual.options import LAUNCH_S, VirtualOptions
from virtual.process.programs import UserProgram

USUAL = 64  # ranks that there is room for where nobody says how many


class ProgramCommand(TyperCommand):
    """A command whose options stand before the program or, where none does, right behind it; others are its own."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Read the command's options; leave all that follows to the program."""
        return super().parse_args(context, self._separated(list(args)))

    def _separated(self, args: list[str]) -> list[str]:
        """Return the arguments with ``--`` before the program."""
        before, rest = self._split(args)
        if rest[:1] == ["-m"]:
            before, rest, name = [*before, *rest[:2]], rest[2:], []
        else:
            rest = rest[rest[:1] == ["--"] :]
            name, rest = rest[:1], rest[1:]
        ours = set[str]() if before else {name for one in self.params for name in one.opts} - {"-m"}
        behind, rest = self._split(rest, ours)
        return [*before, *behind, "--", *name, *rest[rest[:1] == ["--"] :]]

    def _split(self, args: list[str], known: set[str] | None = None) -> tuple[list[str], list[str]]:
        """Return the options at the beginning, of the known names alone where they are given, and what follows them."""
        flags = {name for one in self.params if getattr(one, "is_flag", False) for name in one.opts}
        flags |= {"--help", "-h"}
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] not in ("-m", "--"):
            if known is not None and args[place].partition("=")[0] not in known:
                break
            place += 1 if args[place] in flags or "=" in args[place] else 2
        return args[:place], args[place:]


SETTINGS = {"cls": ProgramCommand}


@dataclass(frozen=True)
class WhereOptions:
    """On how many ranks of what a program runs."""

    ranks: Annotated[int, Option("--ranks", min=0, metavar="N", help="Ranks; 0: the program starts them.")] = 0
    on: Annotated[
        str | None,
        Option("--on", metavar="SCENARIO|MACHINE|GRAPH", help="Its cluster; a star of 10 Gbit/s unless given."),
    ] = None
    per_node: Annotated[
        int | None, Option("--per-node", min=1, metavar="N", help="Ranks on a machine; as the cluster has them.")
    ] = None


@dataclass(frozen=True)
class TimeOptions:
    """How virtual time is found, and in how much real time."""

    compute: Annotated[
        str, Option("--compute", metavar="zero|model|measured|GPU", help="How long computing takes.")
    ] = "zero"
    launch: Annotated[
        str, Option("--launch", metavar="TIME", help="A GPU's host takes to launch an operator; 0 us: is ahead.")
    ] = f"{LAUNCH_S * 1e6:g} us"
    timing: Annotated[
        str, Option("--timing", metavar="auto|live|recorded", help="While it runs, or by a replay afterwards.")
    ] = "auto"
    algorithm: Annotated[
        list[str] | None,
        Option("--algorithm", metavar="COLLECTIVE=NAME", help="Carry out a collective so: all_reduce=my.py:name."),
    ] = None
    timeout: Annotated[float, Option(min=1, metavar="SECONDS", help="End it after so long, of real time.")] = 600.0


@dataclass(frozen=True)
class LikenessOptions:
    """What virtual ranks are like."""

    acts_as: Annotated[
        str | None, Option("--as", metavar="gloo|nccl", help="Whose rules hold, whatever the program asks for.")
    ] = None
    gpu: Annotated[bool, Option("--gpu", help="The program asks for CUDA: give it GPUs that compute here.")] = False
    own: Annotated[
        list[str] | None, Option("--own", metavar="PACKAGE", help="Give each rank its own modules of a package.")
    ] = None
    fake: Annotated[
        bool, Option("--fake", help="Without data: torch's FakeTensors, shapes and types only, so that any model fits.")
    ] = False
    only: Annotated[
        str | None,
        Option("--only", metavar="0,32", help="With --fake: ranks that run; others do as the nearest before them."),
    ] = None
    strict: Annotated[bool, Option("--strict", help="Look for mistakes that do not show, which takes longer.")] = False


@dataclass(frozen=True)
class FileOptions:
    """What is written besides."""

    trace: Annotated[Path | None, Option("--trace", metavar="FILE", help="Write all messages, to be played.")] = None
    recording: Annotated[
        Path | None, Option("--recording", metavar="FILE", help="Write what ranks called, to be replayed.")
    ] = None
    report: Annotated[Path | None, Option("--report", metavar="FILE.html", help="Write the player's page.")] = None


@with_groups
def command(
    program: Annotated[list[str] | None, typer.Argument(metavar="SCRIPT ARGS", help="The program.")] = None,
    module: Annotated[str | None, Option("-m", metavar="MODULE", help="A module in place of a script.")] = None,
    *,
    where: WhereOptions,
    times: TimeOptions,
    likeness: LikenessOptions,
    files: FileOptions,
    outputs: AnswerOptions,
) -> None:
    """Run a program of torch.distributed as it stands on virtual ranks: how long, who waits for whom, what hangs.

    Data is real, time is virtual. Options of the command stand before the program or, where none does, right behind its
    name; what follows another word, or --, is the program's own.
    """
    check_outputs(outputs.json_to, files.trace, files.recording, files.report)
    asked = make_options(_program(module, program or []), where, times, likeness)
    if not asked.program.is_module:
        asked.program.compile()  # a name mistyped is told before torch is imported
    check_torch()
    show = _on_standard_error if outputs.json_to == "-" else show_on_own
    with VirtualHost() as host:
        answer = VirtualAnswer.of(host.run(asked, timeout=times.timeout, show=show), asked)
    writers = answer.writers(files.trace, files.recording, files.report)
    deliver(answer, outputs.json_to, *writers, explain=outputs.explain)
    if answer.findings:
        raise typer.Exit(1)


def _program(module: str | None, words: Sequence[str]) -> UserProgram:
    if module is not None:
        return UserProgram(module, tuple(words), is_module=True)
    if not words:
        raise InputError("no program is named: give a script, or -m MODULE, behind the options")
    return UserProgram(words[0], tuple(words[1:]))


def _on_standard_error(stream: str, text: str) -> None:
    show_on_own("stderr", text)


def make_options(
    program: UserProgram, where: WhereOptions, times: TimeOptions, likeness: LikenessOptions
) -> VirtualOptions:
    """Return how a program is to be run. Raises InputError."""
    cluster = choose_cluster(where.on, where.ranks)
    per_node = where.per_node or (_gpus_of_a_node(cluster) if where.ranks else None)
    algorithms = dict(_pair(one) for one in times.algorithm or ())
    return VirtualOptions(
        program,
        where.ranks,
        cluster,
        per_node=per_node,
        compute=times.compute,
        launch_s=parse_latency(times.launch),
        timing=times.timing,  # type: ignore[arg-type]  # looked at there
        acts_as=likeness.acts_as,
        gpu=likeness.gpu,
        own=frozenset(likeness.own or ()),
        strict=likeness.strict,
        fake=likeness.fake,
        only=_numbers(likeness.only) if likeness.only else (),
        algorithms=algorithms,
    )


def choose_cluster(word: str | None, ranks: int) -> Cluster:
    """Return what ``--on`` names with so many ranks; a star where it names nothing. Raises InputError."""
    return star(ranks or USUAL, "10 Gbit/s", "5 us") if word is None else find_cluster(word, ranks)


def _gpus_of_a_node(cluster: Cluster) -> int | None:
    """Return how many ranks share the first machine, where the cluster says so."""
    machines = cluster.machines()
    found = machines.count(machines[0])
    return found if found > 1 else None


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"--only {make_printable(text)}: give ranks, such as 0,32") from error


def _pair(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not value:
        raise InputError(f"--algorithm {make_printable(text)}: give COLLECTIVE=NAME, such as all_reduce=ring")
    return name, value
