"""Check invalid scenario files: the error names the file, the key, the value and the accepted values."""

from pathlib import Path

import pytest
from scenario_texts import ASKS, HERE, LINKS, STAR, TRAINS, check_refused

from collectives import InputError
from scenarios import load

ACCEPTED = (
    'set exactly one of preset = "this-machine", topology = "star" with hosts, bandwidth and latency, '
    "system with a system description, or [[cluster.link]] tables"
)
DDP = '"ddp" does not support faults, because it is predicted by formula'
SLOW = "faults={rank=[{rank=1, slowdown=2.0}]}"
BROADCAST = "collective.name=broadcast; collective.algorithms=naive; "

# valid scenario: {overrides: message}
WRONG = {
    STAR + ASKS: {
        "cluster.worldsize=2": "unknown key cluster.worldsize; did you mean world_size? (",
        "cluster.bandwidth=25 Gb/s": "cluster.bandwidth: '25 Gb/s' is not a bandwidth; write a number and one of bit/s",
        "cluster.bandwidth=10": "cluster.bandwidth: 10 is not a bandwidth: the unit is missing",
        "cluster.world_size=5": "cluster.world_size: 5 ranks do not fit: the cluster has 4 hosts, with one rank",
        "cluster.preset=this-machine": f"cluster: preset and topology are mutually exclusive; {ACCEPTED}",
        "cluster={}": f"cluster: the kind of cluster is missing; {ACCEPTED}",
        "cluster=3": "cluster = 3 must be a table",
        "cluster={topology='star', hosts=4}": 'bandwidth is missing; topology = "star" requires hosts, bandwidth',
        "cluster.topology=moebius": "cluster: unknown topology 'moebius'; choose one of star, ring, ",
        "cluster.topology=net.graphml": "fat-tree, or a .json file in networkx's node-link form",
        "what_if=[{title='x'}]": "what_if.0: this what-if is identical to the scenario; add a [what_if.cluster]",
        "title=''": 'title = "" must not be empty',
        "collective.sizes=['1 Mb']": "collective.sizes.0: '1 Mb' is not a size; write a number and one of B, kB",
        "collective.sizes=['3 B']": "collective.sizes: 3 B is smaller than one float32 element (4 B)",
        "collective.sizes=[]": "collective.sizes = [] should have at least 1 item",
        "collective={algorithms=['ring'], sizes=['1 B']}": 'collective.name is missing: for example "all_reduce"',
        "collective.name=all_to_none": "unknown collective 'all_to_none'; did you mean all_to_all? (9 choices",
        "collective.algorithms=['rong']": "unknown algorithm 'all_reduce/rong'; did you mean all_reduce/ring? (",
        "collective.algorithms=['absent.py:x']": "absent.py: no such file",
        "collective.algorithms=[{name='ring', gpus=4}]": "all_reduce/ring has no parameter 'gpus'; it has: none",
        "collective.algorithms=[{gpus=4}]": 'an algorithm is "ring", {name = "ring", parameter = 4} or "my.py:name"',
        "collective.op=xor": "collective.op: unknown op 'xor'; choose one of sum, mean, min, max, product",
        "collective.root=1": "collective.root: all_reduce does not have a root; remove root = 1",
        BROADCAST + "collective.root=4": "rank 4 does not exist in star of 4 hosts, 10 Gbit/s; ranks are 0 to 3",
        BROADCAST
        + "collective.root=3; what_if=[{title='x', cluster={preset='this-machine'}}]": "rank 3 does not exist in 2",
        BROADCAST + "collective.op=max": "collective.op: broadcast does not reduce; remove op =",
    },
    LINKS + ASKS: {
        "cluster.link.1.between=['s0', 'x1']": "link s0 - x1: node must be a host h0, h1, ... or a switch s0, s1, ",
        "cluster.link.1.between=['s0', 's0']": "cluster.link: link s0 - s0: the two nodes must be different",
        "cluster.link.1.between=['s0', 'h0']": "cluster.link: duplicate link s0 - h0",
        "cluster.link.1.between=['s1', 'h1']": "the network has 2 unconnected parts; connect h0, s0 to the rest",
        "cluster.link.0.between.0=s1; cluster.link.1.between.1=s2": "the cluster has no host; name hosts h0, h1, ...",
    },
    HERE + ASKS: {
        "cluster.transport=ideal": 'transport must be "gloo-tcp" for this machine',
    },
    STAR + TRAINS: {
        "training={}": "training.gradient_sync is missing; set for example",
        "training.gradient_sync=['ring', 'unchunked_ring']": "sync.1: all_reduce/unchunked_ring: its 4 ranks add in",
        "training.sequence=128": "training: sequence only applies to transformers, and model is 'resnet18'; remove",
        "training.price_per_hour=1e300": "price_per_hour = 1e+300 should be less than or equal to 1000000",
        "training.sequence=4096; training.model=gpt2": "sequence = 4096: gpt2 has 1024 positions; use at most 1024",
        "plan={target_samples=1.0, target_tokens=1.0}": "plan: target_samples and target_tokens are mutually exclusive",
        "training.dataset=mnist": "unknown training.dataset 'mnist'; choose one of digits, cifar10",
        "training.accumulate=5": "training: batch_size (32) must be a multiple of accumulate (5)",
        "training.dataset=synthetic; training.image_shape=[32, 32]": "image_shape must be [channels, height, width]",
        "training.gradient_sync=['ddp']; training.sync_every=4": "sync_every (4) averages weights, so",
        "training.gradient_sync={name='ring', bucket_mb=4}": "bucket_mb of ring requires overlap = true",
        "training.scale_learning_rate=yes": "scale_learning_rate must be True or False, or one of linear, sqrt",
        "training.compute={gpu=['T4', 'L4']}": "must be a string, as all devices are alike; name the slowest GPU",
        "training.compute={forward='1 s', optimizer='1 s'}": 'backward is missing; set for example backward = "12 ms"',
        "training.compute={forward='0 s', backward='0 s', optimizer='0 s'}": "all compute times are zero",
        "training.gradient_sync=['ring', 'ddp']; " + SLOW: DDP,
        "training.gradient_sync=ddp; what_if=[{title='x', " + SLOW + "}]": DDP,
    },
}


@pytest.mark.parametrize(("text", "sets"), [(text, sets) for text, table in WRONG.items() for sets in table])
def test_invalid_scenario_value_is_rejected(tmp_path: Path, text: str, sets: str) -> None:
    check_refused(tmp_path, text, WRONG[text][sets], *sets.split("; "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ASKS, 'cluster is missing: for example [cluster] with preset = "this-machine"'),
        (STAR, "nothing to run; add a [collective] or [training] table"),
        (STAR + "hosts 4\n" + ASKS, "invalid TOML: Expected '=' after a key in a key/value pair (at line 7, column 7)"),
        (STAR + ASKS + "[", "invalid TOML: Invalid initial character for a key part (at end of document) on line 12"),
        (STAR + "hosts = 4\n" + ASKS, "invalid TOML: Cannot overwrite a value (at line 7, column 10)"),
        (b'[cluster]\n# gr\xfc\xdfe\npreset = "this-machine"\n', "line 2 is not UTF-8 text"),
    ],
)
def test_invalid_scenario_file_is_rejected(tmp_path: Path, text: str | bytes, message: str) -> None:
    check_refused(tmp_path, text, message)


def test_missing_scenario_file_or_directory_is_rejected(tmp_path: Path) -> None:
    advice = "pass a scenario file or a shipped scenario; "
    with pytest.raises(InputError, match=f"^quickstrat: no such file; {advice}did you mean quickstart?"):
        load("quickstrat")
    with pytest.raises(InputError, match=f"is a directory; {advice}choose one of dgx-"):
        load(str(tmp_path))
