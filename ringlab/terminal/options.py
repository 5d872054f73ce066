"""The arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ScenarioArg = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")]
SetOpt = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario.")]
JsonOpt = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - for standard output.")
]
TraceOpt = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write the last algorithm's messages at the largest size."),
]
CalibrationOpt = Annotated[
    Path | None, typer.Option("--calibration", metavar="FILE", help="Use this calibration, not the cached one.")
]
TIMEOUT_S = 600.0  # unless another is given
TimeoutOpt = Annotated[
    float,
    typer.Option(
        min=1, metavar="SECONDS", help="End a real run after so long, a training after so long without a step."
    ),
]
BackendOpt = Annotated[str, typer.Option(metavar="gloo|nccl", help="What torch.distributed sends with.")]
EmulateOpt = Annotated[
    bool, typer.Option("--emulate", help="Build the scenario's network on this machine and run on it.")
]
ResumeOpt = Annotated[
    str | None,
    typer.Option("--resume", metavar="auto|FILE", help="Go on with a training from its newest checkpoint, or one."),
]
ElasticOpt = Annotated[
    bool, typer.Option("--elastic", help="Under torchrun, take as many ranks as it has started this time.")
]
LogDirOpt = Annotated[
    Path | None, typer.Option("--log-dir", metavar="DIR", help="Keep metrics and a log a rank of trainings there.")
]
TensorBoardOpt = Annotated[bool, typer.Option("--tensorboard", help="Keep curves for TensorBoard there too.")]
ProfileOpt = Annotated[
    str | None, typer.Option("--profile", metavar="STEPS", help="Keep torch's profile of these steps too: 10 or 10-12.")
]
PredictOpt = Annotated[
    bool, typer.Option("--predict", help="Show the prediction before the run, and both side by side after it.")
]
ExplainOpt = Annotated[bool, typer.Option("--explain", help="Say all that is known below the tables.")]
