"""Writes a device mesh as torchtitan's TOML, Megatron-LM's arguments or accelerate's FSDP file.

The option names come from torchtitan's ``job_config.py``, Megatron-LM's ``arguments.py`` and accelerate's FSDP2 guide.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from collectives.checks import check_known
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.removed import OPTIONS, describe_removed
from planner.jobs import OPTIMIZERS
from planner.search import FoundMeshes, MeshJob, SearchedMesh

FLAVORS = {"llama3-8b": "8B", "llama3-70b": "70B", "llama3-405b": "405B"}  # of torchtitan's llama3


def _flavor(job: MeshJob) -> str:
    """Return the code of a torchtitan flavor, whose MLP width is 8/3 of the width, rounded up to ``multiple_of``."""
    shape = job.shape
    usual = 8 * shape.width // 3
    narrower = f", ffn_dim_multiplier={0.9 * shape.hidden / usual:.2g}" if usual > shape.hidden else ""
    return (
        f"TransformerModelArgs(dim={shape.width}, n_layers={shape.layers}, n_heads={shape.heads}, "
        f"n_kv_heads={shape.kv_heads}, vocab_size={shape.vocabulary}, multiple_of={shape.hidden}{narrower})"
    )


def torchtitan(job: MeshJob, mesh: SearchedMesh, model: str) -> str:
    """Return a mesh as torchtitan's TOML. Comments contain the code to add for a model that torchtitan lacks."""
    added = [
        f"# torchtitan lacks {model}. Add it to the table of flavors in its torchtitan/models/llama3/__init__.py:",
        f'#     "ringlab": {_flavor(job)},',
    ]
    group, form = mesh.dp, mesh.sharding
    inner = min(group, max(1, job.node_gpus // mesh.tp))
    replicate, shard = {"ddp": (group, 1), "hsdp": (group // inner, inner)}.get(form, (1, group))
    schedule = "Interleaved1F1B" if mesh.vp > 1 else "1F1B"
    precision = {"bf16": "bfloat16"}.get(job.precision, job.precision)
    lines = [
        *(added if model not in FLAVORS else ()),
        "[model]", 'name = "llama3"', f'flavor = "{FLAVORS.get(model, "ringlab")}"', "", "[training]",
        f"local_batch_size = {mesh.micro_batch * (mesh.grad_accum if mesh.pp > 1 else 1)}",
        f"global_batch_size = {job.batch}", f"seq_len = {job.seq}", f"compile = {str(job.is_compiled).lower()}",
        f'mixed_precision_param = "{precision}"', "",
        "[parallelism]", f"data_parallel_replicate_degree = {replicate}", f"data_parallel_shard_degree = {shard}",
        f'fsdp_reshard_after_forward = "{"never" if form == "zero2" else "default"}"',
        f"tensor_parallel_degree = {mesh.tp}", f"context_parallel_degree = {mesh.cp}",
        f"pipeline_parallel_degree = {mesh.pp}",
    ]  # fmt: skip
    if mesh.pp > 1:
        lines += [
            f'pipeline_parallel_schedule = "{schedule}"',
            f"pipeline_parallel_microbatch_size = {mesh.micro_batch}",
            f"pipeline_parallel_layers_per_stage = {job.shape.layers // (mesh.pp * mesh.vp)}",
        ]
    lines += ["", "[activation_checkpoint]", f'mode = "{mesh.recompute}"', 'selective_ac_option = "op"']
    return "\n".join(lines) + "\n"


def megatron(job: MeshJob, mesh: SearchedMesh, model: str) -> str:
    """Return a mesh as arguments of Megatron-LM's ``pretrain_gpt.py``, which ``$(< FILE)`` inserts into a command."""
    shape = job.shape
    words = [
        f"--num-layers {shape.layers}", f"--hidden-size {shape.width}", f"--ffn-hidden-size {shape.hidden}",
        f"--num-attention-heads {shape.heads}", f"--seq-length {job.seq}", f"--max-position-embeddings {job.seq}",
        f"--tokenizer-type NullTokenizer --vocab-size {shape.vocabulary}",
        f"--micro-batch-size {mesh.micro_batch}", f"--global-batch-size {job.batch}",
        f"--tensor-model-parallel-size {mesh.tp}", f"--pipeline-model-parallel-size {mesh.pp}",
        f"--context-parallel-size {mesh.cp}", "--overlap-grad-reduce", "--use-flash-attn",
    ]  # fmt: skip
    if shape.kv_heads != shape.heads:
        words.append(f"--group-query-attention --num-query-groups {shape.kv_heads}")
    if job.kind == "llama":
        words.append("--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope")
        words.append("--untie-embeddings-and-output-weights")
    if job.experts:
        words.append(f"--num-experts {job.experts} --moe-router-topk {job.top_k}")
        words.append(f"--expert-model-parallel-size {mesh.ep} --moe-token-dispatcher-type alltoall --moe-grouped-gemm")
    if mesh.vp > 1:
        words.append(f"--num-layers-per-virtual-pipeline-stage {shape.layers // (mesh.pp * mesh.vp)}")
    if mesh.tp > 1:
        words.append("--sequence-parallel")
    if mesh.sharding == "zero1":
        words.append("--use-distributed-optimizer --overlap-param-gather")
    if mesh.recompute == "full":
        words.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    elif mesh.recompute == "selective":
        words.append("--recompute-granularity selective")
    precision = {"bf16": "--bf16", "fp16": "--fp16", "fp8": "--bf16 --fp8-format hybrid"}
    words += [precision[job.precision]] if job.precision in precision else []
    words += ["--optimizer sgd"] if job.optimizer == "sgd" else []
    return "\n".join(words) + "\n"


def accelerate(job: MeshJob, mesh: SearchedMesh, model: str) -> str:
    """Return a mesh as the YAML file of ``accelerate launch --config_file``."""
    machines = max(1, job.gpus // job.node_gpus)
    precision = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}.get(job.precision, "no")
    lines = [
        f"# {model}: micro batch {mesh.micro_batch}, gradient_accumulation_steps {mesh.grad_accum}",
        "compute_environment: LOCAL_MACHINE", "distributed_type: FSDP", f"num_machines: {machines}",
        f"num_processes: {job.gpus}", "machine_rank: 0", f'mixed_precision: "{precision}"', "fsdp_config:",
        "  fsdp_version: 2", f"  fsdp_reshard_after_forward: {str(mesh.sharding == 'zero3').lower()}",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        f"  fsdp_activation_checkpointing: {str(mesh.recompute == 'full').lower()}",
        "  fsdp_state_dict_type: SHARDED_STATE_DICT", "  fsdp_cpu_ram_efficient_loading: true",
        "  fsdp_offload_params: false",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


class Format(NamedTuple):
    """A configuration format, and the meshes and the training jobs that it supports.

    accelerate supports any training, because the user's script defines it.
    """

    write: Callable[[MeshJob, SearchedMesh, str], str]
    shardings: tuple[str, ...]
    precisions: tuple[str, ...]
    optimizers: tuple[str, ...] = ("adamw",)
    kinds: tuple[str, ...] = ("llama",)
    has_experts: bool = False
    has_adapters: bool = False
    is_data_only: bool = False

    def supports(self, job: MeshJob, mesh: SearchedMesh) -> bool:
        """Return whether the format supports the mesh. No format supports zero bubble or split KV heads."""
        if self.is_data_only and (mesh.tp * mesh.cp * mesh.pp * mesh.ep > 1 or mesh.recompute == "selective"):
            return False
        is_plain = mesh.schedule != "zero_bubble" and job.shape.kv_heads % mesh.tp == 0
        return is_plain and mesh.sharding in self.shardings

    def describe_unsupported(self, job: MeshJob) -> str:
        """Return the parts of the training that the format does not support; "" if it supports all of them."""
        unsupported = {
            f"a {job.kind} (but {', '.join(self.kinds)})": job.kind not in self.kinds,
            f"{job.precision} (but {', '.join(self.precisions)})": job.precision not in self.precisions,
            f"optimizer {job.optimizer} (but {', '.join(self.optimizers)})": job.optimizer not in self.optimizers,
            "experts": job.experts > 0 and not self.has_experts,
            "adapters": job.lora > 0 and not self.has_adapters,
            f"offload of {job.offload}": job.offload != "none",
        }
        return ", ".join(part for part in unsupported if unsupported[part])


ANY = ("bf16", "fp16", "fp8", "float32")
FORMATS = {
    "torchtitan": Format(torchtitan, ("ddp", "zero2", "zero3", "hsdp"), ("bf16", "float32")),
    "megatron": Format(megatron, ("ddp", "zero1"), ANY, ("adamw", "sgd"), ("gpt", "llama"), has_experts=True),
    "accelerate": Format(accelerate, ("zero2", "zero3"), ANY, OPTIMIZERS, ("gpt", "bert", "llama"), True, True, True),
}


def parse_export(text: str) -> tuple[str, Path]:
    """Parse the format and the file of ``--export``. Raise InputError if the format is unknown or the file is missing.

    >>> parse_export("megatron=args.txt")
    ('megatron', PosixPath('args.txt'))
    """
    name, equals, file = text.partition("=")
    if removed := describe_removed(OPTIONS, f"search --export {name}"):
        raise InputError(removed)
    check_known("export format", name, FORMATS)
    if not (equals and file):
        raise InputError(f"--export {quote(text)}: expected FORMAT=FILE, such as {name}=FILE")
    return name, Path(file)


def write_mesh(meshes: FoundMeshes, model: str, format_name: str) -> tuple[int, str]:
    """Return the index of the fastest mesh that a format supports, and its configuration.

    Raises InputError if the format does not support the training, or none of the meshes that fit into memory.
    """
    target = FORMATS[format_name]
    if unsupported := target.describe_unsupported(meshes.job):
        raise InputError(f"export {format_name}: the format does not support {unsupported}")
    for number in meshes.order.tolist():
        if target.supports(meshes.job, meshes.searched[number]):
            return number, target.write(meshes.job, meshes.searched[number], model)
    raise InputError(f"export {format_name}: the format does not support any of the meshes that fit")
