"""The command ``ringlab slurm``."""

from ringlab.jobs.options import JobOptions, SlurmOptions
from ringlab.terminal.job_files import JobOutputOpt, load_job, write_job
from ringlab.terminal.option_groups import with_groups
from ringlab.terminal.options import ScenarioArg


@with_groups
def slurm(scenario: ScenarioArg, output: JobOutputOpt = None, *, job: JobOptions, options: SlurmOptions) -> None:
    """Write a batch file of Slurm that runs the scenario under torchrun; `sbatch FILE` submits it."""
    from ringlab.jobs.slurm import write_batch_file

    write_job(write_batch_file(load_job(scenario, job, output), options), output, "sbatch")
