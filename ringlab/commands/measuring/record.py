"""``ringlab record``: record the collectives and the compute times of a script on real ranks, for a replay."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar

from typer import Argument, Option

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.input_files import FileBytes, check_input
from collectives.units import format_time
from collectives.variables import is_launched
from realcomm.launching.torch_process import check_torch
from replay.capture.rank_log import join_parts, parts_folder, start_ranks
from replay.recording import Recording, read_recording
from ringlab.shared.answer import Answer
from ringlab.shared.options import JsonOpt, TimeoutOpt, option, output_option, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.table import Line, Part

SETTINGS = {"context_settings": {"allow_interspersed_args": False}}  # arguments after SCRIPT belong to it
JOIN_S = 60.0  # time that rank 0 waits for the files of other ranks after its own program has ended


@dataclass(frozen=True)
class RankOptions:
    """The options of ``ringlab record`` for the ranks that it starts."""

    ranks: int = option(2, help="Number of ranks to start. Under torchrun, torchrun sets the number.", min=1)
    timeout: TimeoutOpt = 600.0


@with_groups
def command(
    script: Annotated[str, Argument(metavar="SCRIPT", help="torch.distributed script, as you would pass to torchrun.")],
    arguments: Annotated[list[str] | None, Argument(metavar="[ARGS]...", help="Arguments of the script.")] = None,
    *,
    started: RankOptions,
    output: Annotated[Path, output_option("Output file for the recording.", "RUN.json")] = Path("run.json"),
    module: Annotated[bool, Option("-m", help="Treat SCRIPT as a module, as python -m does.")] = False,
    parts: Annotated[Path | None, Option(hidden=True)] = None,
    json_to: JsonOpt = None,
) -> None:
    """Record the collectives and the compute times of a torch.distributed script on real ranks.

    The script runs unmodified, over gloo or NCCL. Put Ringlab's options before SCRIPT. The command also works under
    torchrun.
    """
    if not module:
        check_input(Path(script), FileBytes.PROGRAM)
    if is_launched():
        recording = _record_rank([script, *(arguments or [])], output, parts or parts_folder(output), module)
        if recording is not None and parts is None:  # under the user's torchrun, standard output is the script's
            calls = f"{len(recording.calls):,} calls of {recording.world_size} ranks"
            sys.stderr.write(f"ringlab: recorded {calls}; replay with `ringlab replay {output} --on two-racks`\n")
        return
    check_torch()
    check_outputs(json_to, output)
    words = [*(["-m"] if module else []), script, *(arguments or [])]
    ranks = check_whole_number("ranks", started.ranks, at_least=1)
    deliver(record_program(words, ranks, output, started.timeout), json_to)


def record_program(words: list[str], ranks: int, output: Path, timeout: float) -> "RecordAnswer":
    """Run a script on ``ranks`` real processes, and write its recording to ``output``. Raise RunFailed if a rank fails.

    ``words`` are Python's arguments: a script or ``-m MODULE``, then the script's arguments. ``timeout`` is in seconds.
    """
    with TemporaryDirectory(prefix="ringlab-record-") as folder:
        start_ranks(ranks, ["record", "--parts", folder, "-o", str(output.absolute()), *words], timeout)
    recording = read_recording(output)
    took: Any = recording.took()
    return RecordAnswer(
        title=recording.title,
        file=str(output),
        where=recording.where,
        ranks=recording.world_size,
        calls=len(recording.calls),
        took_s=float(took.max(initial=0.0)),
        computed_s=float(recording.computed().mean()),
        notes=recording.notes,
    )


def _record_rank(words: list[str], output: Path, folder: Path, module: bool) -> Recording | None:
    from replay.capture.recorder import record_script  # imports torch, which the launching process does not need

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output}: cannot write the per-rank files next to it: {error.strerror}") from error
    record_script(Path(words[0]), words[1:], folder, as_module=module)
    if os.environ["RANK"] != "0":
        return None
    return join_parts(folder, output, int(os.environ["WORLD_SIZE"]), JOIN_S)


@dataclass(frozen=True, repr=False, kw_only=True)
class RecordAnswer(Answer):
    """The result of ``ringlab record``."""

    kind: ClassVar[str] = "record"

    title: str
    file: str
    where: str
    ranks: int
    calls: int
    took_s: float
    computed_s: float  # mean over the ranks
    notes: tuple[str, ...] = ()

    def show(self) -> Iterator[Part]:
        yield Line(f"{self.title}: wrote {self.calls:,} calls of {self.ranks} ranks to {self.file}", "bold")
        yield f"The run took {format_time(self.took_s)}; a rank computed for {format_time(self.computed_s)} on average."
        yield f"Predict its time on another network: `ringlab replay {self.file} --on two-racks`."
        yield from (Line(note, wrap=True) for note in self.notes)
