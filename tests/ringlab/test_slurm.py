"""Slurm batch scripts and the Kubernetes manifest of the page: schedulers accept them, and each node runs torchrun."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # distributed, which tests need, brings it
from command_line import ROOT

from collectives.errors import InputError
from collectives.quoting import quote_for_bash
from ringlab.commands.slurm import Job, JobOptions, SlurmOptions, make_job, write_batch_file
from ringlab.scenario import load

HOSTILE = 'it\'s "$(touch pwned)" `touch pwned`; #SBATCH --nodes=99\n#SBATCH --nodes=99\r\x1b[31m $$(HOME) $(POD_IP) ü'
STAR = """
[cluster]
topology = "star"
hosts = 2
bandwidth = "1 Gbit/s"
latency = "5 us"
[collective]
name = "all_reduce"
algorithms = ["ring"]
sizes = ["1 KiB"]
"""
RUN = ["-m", "ringlab", "run", "--backend", "nccl", "--resume", "auto", "star8"]
JOB = Job("star8", "Eight hosts", nodes=2, ranks_per_node=4, resumes=True)


def directives(text: str) -> dict[str, str]:
    """Return the options that sbatch reads: lines before the first command that begin with ``#SBATCH``."""
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            name, _, value = line.removeprefix("#SBATCH ").partition("=")
            assert name.startswith("--") and re.fullmatch(r"[^\s#'\"\\$]*", value), line
            values[name.removeprefix("--")] = value
    return values


def stub(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def cluster(tmp_path) -> Path:
    """Return a folder for PATH. Its ``srun`` runs the task on two nodes, and its ``python`` saves its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    stub(folder, "scontrol", '[ "$1" = show ] && printf "node7\\nnode8\\n" || echo "$*" >> "$NOTES/scontrol"')
    stub(folder, "srun", 'while [[ $1 == --* ]]; do shift; done\nfor i in 0 1; do SLURM_NODEID=$i "$@" || exit; done')
    stub(folder, "python", 'printf "%s\\0" "$@" > "$NOTES/node${SLURM_NODEID:-$JOB_COMPLETION_INDEX}"')
    return folder


def run_batch_file(text: str, cluster: Path, notes: Path) -> subprocess.CompletedProcess[str]:
    file = notes / "job.sbatch"
    file.write_text(text)
    subprocess.run(["bash", "-n", str(file)], check=True)
    environment = {"PATH": f"{cluster}:/usr/bin:/bin", "NOTES": str(notes), "SLURM_JOB_ID": "12345"}
    environment["SLURM_JOB_NODELIST"] = "node[7-8]"
    return subprocess.run(["bash", str(file)], env=environment, capture_output=True, text=True, timeout=60, check=False)


def words(file: Path) -> list[str]:
    return file.read_bytes().decode().split("\0")[:-1]


@pytest.mark.parametrize(("name", "nodes", "gpus"), [("two-p5", 2, 8), ("quickstart", 1, 2), ("star8", 8, 1)])
def test_slurm_job_has_the_nodes_and_gpus_of_the_scenario(name, nodes, gpus):
    job = make_job(load(name), name)
    assert (job.nodes, job.gpus_per_node) == (nodes, gpus)
    assert directives(write_batch_file(job, SlurmOptions()))["nodes"] == str(nodes)


def test_batch_file_contains_the_requested_slurm_directives():
    options = SlurmOptions(
        "2-00:00:00", "gpu", "lab", 64, "ib0", directives=["--exclusive", "--job-name=mine", "--output=logs/%j.log"],
    )  # fmt: skip
    requested = directives(write_batch_file(JOB, options))
    assert requested == {
        "job-name": "mine", "nodes": "2", "ntasks-per-node": "1", "gpus-per-node": "4", "cpus-per-task": "64",
        "time": "2-00:00:00", "partition": "gpu", "account": "lab", "output": "logs/%j.log", "open-mode": "append",
        "requeue": "", "signal": "B:USR1@120", "exclusive": "",
    }  # fmt: skip
    assert directives(write_batch_file(replace(JOB, resumes=False), options))["no-requeue"] == ""
    assert "gpus-per-node" not in directives(
        write_batch_file(replace(JOB, options=JobOptions(backend="gloo")), options)
    )


def test_each_node_runs_torchrun_and_the_first_hosts_the_store(cluster, tmp_path):
    options = SlurmOptions(python="python", before=['printf \'%s\' "$PWD" > "$NOTES/before"'], folder=str(tmp_path))
    done = run_batch_file(write_batch_file(JOB, options), cluster, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "before").read_text() == str(tmp_path)
    for node, is_host in enumerate((1, 0)):
        call = words(tmp_path / f"node{node}")
        assert call[:4] == [
            "-m", "torch.distributed.run", "--rdzv-conf", f"is_host={is_host},join_timeout=900,read_timeout=900",
        ]  # fmt: skip
        launch_options = call[4 : -len(RUN)]
        assert dict(zip(launch_options[::2], launch_options[1::2], strict=True)) == {
            "--nnodes": "2", "--nproc-per-node": "4", "--max-restarts": "3", "--rdzv-backend": "c10d",
            "--rdzv-id": "12345", "--rdzv-endpoint": "node7:22345",
        }  # fmt: skip
        assert call[-len(RUN) :] == RUN


def test_hostile_scenario_executes_nothing(cluster, tmp_path):
    folder = tmp_path / "a 'b' $(touch pwned)"
    folder.mkdir()
    file = folder / "-x $(touch pwned).toml"
    title = "".join(character if character.isprintable() else " " for character in HOSTILE)  # others are refused
    file.write_text(f"title = {json.dumps(title)}\n{STAR}")
    overrides = [f"title={title}"]
    job = make_job(load(file, *overrides), str(file), JobOptions(overrides, log_dir=HOSTILE))
    text = write_batch_file(job, SlurmOptions(python="python", folder=str(folder)))
    assert directives(text)["nodes"] == "2"
    assert "\u202e" not in write_batch_file(replace(job, scenario="a\u202eb.toml", title="x\u202ey"), SlurmOptions())
    done = run_batch_file(text, cluster, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    expected = ["-m", "ringlab", "run", "--backend", "nccl", "--set", overrides[0], "--log-dir", HOSTILE, str(file)]
    assert words(tmp_path / "node0")[-len(expected) :] == expected
    assert not [*tmp_path.rglob("pwned")]


def expand(word: str, variables: dict[str, str]) -> str:
    """Expand a word of a container's command like a kubelet: $(NAME) is a variable if it exists, and $$ is a dollar."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, word)


def test_kubernetes_manifest_in_the_docs_starts_torchrun(cluster, tmp_path):
    page = (ROOT / "docs" / "how-to" / "run-on-cluster.md").read_text(encoding="utf-8")
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    service, job = yaml.safe_load_all(manifest)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    request = make_job(load("two-p5"), "two-p5")
    assert (service["kind"], job["kind"], job["spec"]["completions"]) == ("Service", "Job", request.nodes)
    assert service["metadata"]["name"] == pod["subdomain"] == job["metadata"]["name"]
    assert service["spec"]["selector"] == job["spec"]["template"]["metadata"]["labels"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(request.gpus_per_node)
    for index in range(request.nodes):
        variables = {"POD_IP": "10.0.0.7", "JOB_COMPLETION_INDEX": str(index)}
        environment = {**variables, "PATH": f"{cluster}:/usr/bin:/bin", "NOTES": str(tmp_path)}
        subprocess.run([expand(word, variables) for word in container["command"]], env=environment, check=True)
        call = words(tmp_path / f"node{index}")
        assert call[:2] == ["-m", "torch.distributed.run"]
        assert call[2:10] == request.torchrun_options()
        assert call[call.index("--rdzv-endpoint") + 1] == "two-p5-0.two-p5:29500"
        assert call[call.index("--rdzv-conf") + 1].startswith(f"is_host={int(index == 0)},")
        assert call[call.index("--local-addr") + 1] == "10.0.0.7"
        assert call[-len(request.command()) :] == request.command()


def test_job_is_requeued_before_its_time_limit(cluster, tmp_path):
    """The signal arrives while the ranks run. The ranks end once the file exists."""
    stub(
        cluster,
        "python",
        '[ "$SLURM_NODEID" = 0 ] || exit 7\nkill -USR1 "$(cat "$NOTES/pid")"\n'
        'for i in $(seq 600); do [ -e "$NOTES/scontrol" ] && exit 0; sleep 0.1; done; exit 1',
    )
    text = write_batch_file(JOB, SlurmOptions(python="python", before=['echo $$ > "$NOTES/pid"']))
    done = run_batch_file(text, cluster, tmp_path)
    assert (tmp_path / "scontrol").read_text() == "requeue 12345\n"
    assert done.returncode == 7  # the status of the ranks, whatever came meanwhile


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_limit": "24:00:00\n"}, "--time '24:00:00\\n' must not contain"),
        ({"partition": "a b"}, "--partition 'a b' must not contain"),
        ({"account": "x\n#SBATCH --uid=0"}, "--account 'x"),
        ({"directives": ["exclusive"]}, "--sbatch 'exclusive': expected a long sbatch option"),
        ({"directives": ["--comment=a#b"]}, "--sbatch --comment 'a#b' must not contain"),
        ({"interface": "$(id)"}, "--interface '$(id)' must not contain"),
    ],
)
def test_value_that_slurm_misreads_is_rejected(changes, message):
    with pytest.raises(InputError, match=re.escape(message)):
        write_batch_file(JOB, SlurmOptions(**changes))


def test_slurm_job_must_have_the_ranks_of_the_scenario():
    for changes in (JobOptions(nodes=3), JobOptions(nodes=2, per_node=2)):
        with pytest.raises(InputError, match="has 8 ranks"):
            make_job(load("star8"), "star8", changes)
    assert make_job(load("star8"), "star8", JobOptions(nodes=2)).ranks_per_node == 4


def test_slurm_writes_a_file(ringlab, tmp_path):
    status, out, err = ringlab("slurm", "star8", "-N", "2", "-p", "gpu", "-o", tmp_path / "a.sbatch")
    saved = f"Saved to {tmp_path}/a.sbatch. Submit it with `sbatch {tmp_path}/a.sbatch`.\n"
    assert (status, out, err) == (0, saved, "")
    assert directives((tmp_path / "a.sbatch").read_text())["partition"] == "gpu"
    assert ringlab("slurm", "star8", "--nodes", "3")[0] == 2
    batch_file = ringlab("slurm", "quickstart", "--checkpoints", "a\\b kept", "--log-dir", "logs").out
    assert directives(batch_file)["signal"] == "B:USR1@120"
    assert r"""--set 'training.checkpoints="a\\b kept"' --log-dir logs --resume auto quickstart""" in batch_file


@pytest.mark.parametrize("text", ["\u2066it's\\n\u00a0\n", "a\udcffb", "\x1b[31m$(touch x)", "plain", ""])
def test_quoted_word_is_unchanged_after_bash_parses_it(text: str) -> None:
    word = quote_for_bash(text)
    assert word.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, timeout=20, check=True)
    assert done.stdout == os.fsencode(text)


def test_script_starts_on_each_node_with_its_arguments(cluster, ringlab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("-my train.py").write_text("print('trained')\n")
    options = ("--nodes", "2", "--gpus", "8", "--python", "python")
    text = ringlab("slurm", *options, "--", "-my train.py", "--epochs", "$(touch pwned)").out
    assert directives(text)["nodes"] == "2" and directives(text)["gpus-per-node"] == "8"
    done = run_batch_file(text, cluster, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for node in (0, 1):
        call = words(tmp_path / f"node{node}")
        assert call[-3:] == ["./-my train.py", "--epochs", "$(touch pwned)"]
        assert call[call.index("--nproc-per-node") + 1] == "8" and call[call.index("--max-restarts") + 1] == "0"
    assert not [*tmp_path.rglob("pwned")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("none.py", "--gpus", "8"), "none.py: no such file; pass a scenario or a script"),
        (("train.py", "--nodes", "2"), "train.py: the number of ranks per node is missing; pass for example --gpus 8"),
        (
            ("train.py", "--gpus", "8", "--set", "a=1"),
            "--set only applies to scenarios; pass arguments of the script after --",
        ),
        (("star8", "extra"), "star8: only a script takes arguments; remove extra"),
    ],
)
def test_slurm_rejects_missing_files_and_unsuitable_arguments(ringlab, tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    status, out, err = ringlab("slurm", *given)
    assert (status, out) == (2, "") and message in err
