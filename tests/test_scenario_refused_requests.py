"""Wrong collectives and trainings: refused with the file, the key, the value and what is accepted."""

from pathlib import Path

import pytest
from scenario_texts import ASKS, STAR, TRAINS, changed, check_refused, write

from collectives import InputError
from scenarios import load

WRONG = {
    "misspelt compute": (
        STAR + TRAINS + '[training.compute]\nfoward = "1 ms"\n',
        "training.compute.foward is no known key; did you mean forward? (of 7)",
    ),
    "bare size": (
        changed(ASKS, '"1 MiB"', "1048576") + STAR,
        "collective.sizes.1: 1048576 is no size: a bare number has no unit",
    ),
    "ambiguous size": (
        changed(ASKS, "1 MiB", "1 Mb") + STAR,
        "collective.sizes.1: '1 Mb' is no size; write a number and one of B, kB",
    ),
    "size below an element": (
        changed(ASKS, "64 KiB", "3 B") + STAR,
        "collective.sizes: 3 B holds no element of float32, which takes 4 B",
    ),
    "size beyond all bounds": (
        changed(ASKS, "64 KiB", "2000 GB") + STAR,
        'collective.sizes.0 = "2000 GB" should be less than or equal to 1099511627776',
    ),
    "no size": (changed(ASKS, '["64 KiB", "1 MiB"]', "[]") + STAR, "collective.sizes = [] should have at least 1 item"),
    "neither collective nor training": (STAR, "it asks nothing: add a [collective] or a [training] table"),
    "no collective name": (
        changed(ASKS, 'name = "all_reduce"', "") + STAR,
        'collective.name is missing; give for example "all_reduce"',
    ),
    "unknown collective": (
        changed(ASKS, "all_reduce", "all_to_none") + STAR,
        "collective.name: no collective is called 'all_to_none'; did you mean all_to_all? (of ",
    ),
    "unknown algorithm": (
        changed(ASKS, '"ring"', '"rong"') + STAR,
        "collective.algorithms.1: no algorithm is called 'all_reduce/rong'; did you mean all_reduce/ring? (of ",
    ),
    "algorithm of another collective": (
        changed(ASKS, '"ring"', '"reduce/naive"') + STAR,
        "collective.algorithms.1: reduce/naive is no all_reduce",
    ),
    "unknown parameter": (
        changed(ASKS, '"ring"', '{name = "ring", gpus = 4}') + STAR,
        "collective.algorithms.1: all_reduce/ring has no parameter 'gpus'; it has: none",
    ),
    "parameter of no kind": (
        changed(ASKS, '"ring"', '{name = "ring", gpus = 4.5}') + STAR,
        "collective.algorithms.1: parameter gpus = 4.5 of ring is neither a whole number nor a text in quotes",
    ),
    "text for a number": (
        changed(ASKS, '"ring"', '{name = "hierarchical", gpus = "4"}') + STAR,
        "collective.algorithms.1: all_reduce/hierarchical: parameter gpus = '4' is not a whole number",
    ),
    "number for a text": (
        changed(ASKS, '"ring"', '{name = "hierarchical", rail = 4}') + STAR,
        "collective.algorithms.1: all_reduce/hierarchical: parameter rail = 4 is not a text",
    ),
    "unknown algorithm inside": (
        changed(ASKS, '"ring"', '{name = "hierarchical", rail = "rong"}') + STAR,
        "no algorithm is called 'all_reduce/rong'; did you mean all_reduce/ring? (of ",
    ),
    "parameter of auto": (
        changed(ASKS, '"ring"', '{name = "auto", gpus = 4}') + STAR,
        "collective.algorithms.1: all_reduce/auto has no parameter 'gpus'; it has: none",
    ),
    "algorithm without name": (
        changed(ASKS, '"ring"', "{gpus = 4}") + STAR,
        'collective.algorithms.1: an algorithm is "ring", {name = "ring", parameter = 4} or "my.py:name"',
    ),
    "algorithm as a number": (changed(ASKS, '"ring"', "3") + STAR, 'collective.algorithms.1: an algorithm is "ring"'),
    "no algorithm": (
        changed(ASKS, '["naive", "ring"]', "[]") + STAR,
        "collective.algorithms = [] should have at least 1 item",
    ),
    "unknown dtype": (
        ASKS + 'dtype = "float31"\n' + STAR,
        "collective.dtype: dtype 'float31' is not known; there are float32",
    ),
    "unknown op": (
        ASKS + 'op = "xor"\n' + STAR,
        "collective.op: op 'xor' is not known; there are sum, mean, min, max, product",
    ),
    "mean of integers": (
        ASKS + 'op = "mean"\ndtype = "int32"\n' + STAR,
        "collective.op: op 'mean' needs a floating dtype, not 'int32'",
    ),
    "root of an unrooted collective": (
        ASKS + "root = 1\n" + STAR,
        "collective.root: 1 has no meaning, as all_reduce has no root; leave the key out",
    ),
    "root that is no rank": (
        changed(changed(ASKS, "all_reduce", "reduce"), ', "ring"', "") + "root = 4\n" + STAR,
        "collective.root: there is no rank 4 in star of 4 hosts, 10 Gbit/s; ranks are 0..3",
    ),
    "negative root": (ASKS + "root = -1\n" + STAR, "collective.root = -1 should be greater than or equal to 0"),
    "op of a broadcast": (
        changed(changed(ASKS, "all_reduce", "broadcast"), ', "ring"', "") + 'op = "max"\n' + STAR,
        "collective.op: 'max' has no meaning, as broadcast reduces nothing; leave the key out",
    ),
    "no gradient_sync": (STAR + "[training]\n", 'training.gradient_sync is missing; give for example ["ring", "ddp"]'),
    "unknown gradient_sync": (
        changed(TRAINS, "ring", "rong") + STAR,
        "training.gradient_sync.0: no algorithm is called 'all_reduce/rong'",
    ),
    "broadcast as gradient_sync": (
        changed(TRAINS, "ring", "broadcast/naive") + STAR,
        "training.gradient_sync.0: broadcast/naive is no all_reduce",
    ),
    "unknown model": (
        TRAINS + 'model = "resnet19"\n' + STAR,
        "training.model: model 'resnet19' is not known; did you mean resnet18? (there are resnet18",
    ),
    "unknown dataset": (
        TRAINS + 'dataset = "mnist"\n' + STAR,
        "training.dataset: dataset 'mnist' is not known; there are digits, cifar10",
    ),
    "unknown optimizer": (TRAINS + 'optimizer = "adam"\n' + STAR, "training: optimizer 'adam' is not known; there are"),
    "unknown schedule": (TRAINS + 'schedule = "cos"\n' + STAR, "training: schedule 'cos' is not known; there"),
    "unknown precision": (TRAINS + 'precision = "fp8"\n' + STAR, "training: precision 'fp8' is not known; there are"),
    "pieces that do not divide": (
        TRAINS + "accumulate = 5\n" + STAR,
        "training: accumulate is 5; give a divisor of batch_size, which is 32",
    ),
    "no shape": (
        TRAINS + 'dataset = "synthetic"\nimage_shape = [32, 32]\n' + STAR,
        "training: image_shape is [32, 32]; give channels, height and width: [3, 32, 32]",
    ),
    "local SGD of torch's own": (
        STAR + '[training]\ngradient_sync = ["ddp"]\nsync_every = 4\n',
        "training: sync_every is 4: local SGD averages weights by an algorithm",
    ),
    "bucket size without buckets": (
        STAR + '[training]\ngradient_sync = {name = "ring", bucket_mb = 4}\n',
        'training.gradient_sync.0: bucket_mb of ring needs overlap = true or hook = "ddp"',
    ),
    "empty buckets": (
        STAR + '[training]\ngradient_sync = {name = "ring", overlap = true, bucket_mb = 0}\n',
        "training.gradient_sync.0: bucket_mb is 0; give a number of MiB above 0",
    ),
    "unknown hook": (
        STAR + '[training]\ngradient_sync = {name = "ring", hook = "horovod"}\n',
        "training.gradient_sync.0: hook 'horovod' is not known; there are own, ddp",
    ),
    "no batch": (TRAINS + "batch_size = 0\n" + STAR, "training.batch_size = 0 should be greater than or equal to 1"),
    "no epochs": (TRAINS + "epochs = 0\n" + STAR, "training.epochs = 0 should be greater than or equal to 1"),
    "negative seed": (TRAINS + "seed = -1\n" + STAR, "training.seed = -1 should be greater than or equal to 0"),
    "no learning": (TRAINS + "learning_rate = 0\n" + STAR, "training.learning_rate = 0 should be greater than 0"),
    "endless learning": (
        TRAINS + "learning_rate = inf\n" + STAR,
        "training.learning_rate = Infinity should be a finite number",
    ),
    "learning in words": (
        TRAINS + 'learning_rate = "fast"\n' + STAR,
        'training.learning_rate = "fast" should be a number',
    ),
    "maybe": (
        TRAINS + 'scale_learning_rate = "yes"\n' + STAR,
        "training: scale_learning_rate is 'yes'; give True or False, or one of linear, sqrt",
    ),
    "bare compute": (
        TRAINS + "[training.compute]\nforward = 12\n" + STAR,
        "training.compute.forward: 12 is no time: a bare number has no unit",
    ),
    "part of compute": (
        TRAINS + '[training.compute]\nforward = "1 ms"\noptimizer = "1 ms"\n' + STAR,
        'training.compute: backward is missing; give for example "12 ms"',
    ),
    "trouble of ddp": (
        changed(TRAINS, '["ring"]', '["ring", "ddp"]') + "[[trouble.rank]]\nrank = 1\nslowdown = 2.0\n" + STAR,
        'trouble: "ddp" is predicted as a whole, without messages that trouble could meet',
    ),
    "trouble of ddp elsewhere": (
        changed(TRAINS, '["ring"]', '"ddp"')
        + STAR
        + '[[what_if]]\ntitle = "x"\n[[what_if.trouble.rank]]\nrank = 1\nslowdown = 2.0\n',
        'trouble: "ddp" is predicted as a whole, without messages that trouble could meet',
    ),
    "no compute": (
        TRAINS + '[training.compute]\nforward = "0 s"\nbackward = "0 s"\noptimizer = "0 s"\n' + STAR,
        "training.compute: a step that computes for no time has no scaling efficiency; give a time above zero",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_it_is_refused(tmp_path: Path, case: str) -> None:
    check_refused(tmp_path, *WRONG[case])


def test_a_root_must_be_a_rank_of_every_what_if(tmp_path: Path) -> None:
    asks = changed(changed(ASKS, "all_reduce", "broadcast"), ', "ring"', "") + "root = 3\n"
    what_if = '[[what_if]]\ntitle = "x"\n[what_if.cluster]\npreset = "this-machine"\n'
    with pytest.raises(InputError, match=r"there is no rank 3 in 2 ranks of this machine; ranks are 0..1"):
        load(write(tmp_path, STAR + asks + what_if))
