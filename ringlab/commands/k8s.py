"""The command ``ringlab k8s``."""

import json

from ringlab.jobs.options import JobOptions, KubernetesOptions
from ringlab.terminal.job_files import JobOutputOpt, load_job, write_job
from ringlab.terminal.option_groups import with_groups
from ringlab.terminal.options import ScenarioArg


@with_groups
def k8s(scenario: ScenarioArg, output: JobOutputOpt = None, *, job: JobOptions, options: KubernetesOptions) -> None:
    """Write a Job of Kubernetes that runs the scenario under torchrun; `kubectl apply -f FILE` starts it."""
    from ringlab.jobs.kubernetes import make_manifest

    manifest = make_manifest(load_job(scenario, job, output), options)
    write_job(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", output, "kubectl apply -f")
