"""The data sets: real images, a fixed split, and errors for missing files."""

import hashlib
import multiprocessing
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from collectives.errors import InputError
from collectives.training.workload import Training
from realcomm.training import datasets
from realcomm.training.datasets import Augmented, Shard, describe_images, load_images
from realcomm.training.trainer import count_images


def load(dataset, train, folder=None, **changed):
    return load_images(Training(None, dataset=dataset, data_folder=folder, **changed), train)


def tensors(dataset):
    images, labels = zip(*dataset, strict=True)
    return torch.stack(images), torch.tensor([int(label) for label in labels])


def test_digits_are_complete_normalized_and_stratified():
    (train, labels), (held_out, others) = (tensors(load("digits", train)) for train in (True, False))
    assert train.shape == (1437, 3, 32, 32) and held_out.shape == (360, 3, 32, 32)
    assert len(torch.cat([train, held_out]).unique(dim=0)) == 1797
    assert train.dtype == torch.float32
    assert train.mean().item() == pytest.approx(0, abs=1e-5) and train.std().item() == pytest.approx(1, abs=1e-3)
    shares = labels.bincount(minlength=10) / len(labels) - others.bincount(minlength=10) / len(others)
    assert shares.abs().max() < 0.005
    again, same_labels = tensors(datasets._digits.__wrapped__(train=True))  # as another rank has them
    assert torch.equal(train, again) and torch.equal(labels, same_labels)


def test_cifar10_without_a_folder_is_synthetic_with_a_note():
    images, labels = tensors(load("cifar10", train=True, images=20))
    assert images.shape == (20, 3, 32, 32) and labels.tolist() == [*range(10), *range(10)]
    by_class = images.mean(dim=(1, 2, 3)).view(2, 10)
    assert (by_class[:, 9] > by_class[:, 0]).all()  # there is something to learn
    assert len(tensors(load("cifar10", train=False, images=20))[0]) == 5
    [note] = describe_images(Training(None, dataset="cifar10", images=20))
    assert note.startswith("dataset cifar10 without data_folder: 20 synthetic images of its shape are used")
    assert describe_images(Training(None)) == []


def test_missing_cifar10_names_the_folder_and_its_source(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere", Path("/proc/self")):
        with pytest.raises(InputError, match=rf"{folder}: CIFAR-10 not found.*cifar-10-batches-py.*python.tar.gz"):
            load("cifar10", train=True, folder=folder)
    with pytest.raises(InputError, match=r"unknown dataset 'imagenet'; did you mean imagefolder"):
        load("imagenet", train=True)


FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
LABELS = {file: [(number + image) % 10 for image in range(4)] for number, file in enumerate(FILES)}


def pixels_of(file):
    """Four distinct images of a file, uint8 [4, 3072]."""
    return np.random.default_rng(FILES.index(file)).integers(0, 256, (4, 3072), dtype=np.uint8)


def write_copy(folder):
    where = folder / CIFAR10.base_folder
    where.mkdir(parents=True)
    for file in FILES:
        batch = {"batch_label": "one", "labels": LABELS[file], "data": pixels_of(file), "filenames": ["a.png"] * 4}
        (where / file).write_bytes(pickle.dumps(batch))
    (where / "batches.meta").write_bytes(pickle.dumps({"label_names": [*"abcdefghij"]}))
    return where


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The folder of a small copy, which torchvision accepts as the published one."""
    where = write_copy(tmp_path)
    md5 = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in where.iterdir()}
    monkeypatch.setattr(CIFAR10, "train_list", [[file, md5[file]] for file in FILES[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": md5["batches.meta"]})
    return where


def test_cifar10_images_are_normalized_and_sharded(copy):
    mean, std = (torch.tensor(each)[:, None, None] for each in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))
    for folder in (copy.parent, copy):
        for train, files in ((True, FILES[:5]), (False, FILES[5:])):
            images, labels = tensors(load("cifar10", train, folder))
            pixels = torch.from_numpy(np.vstack([pixels_of(file) for file in files])).view(-1, 3, 32, 32)
            torch.testing.assert_close(images, (pixels / 255 - mean) / std)
            assert labels.tolist() == [label for file in files for label in LABELS[file]]
    job = Training(None, dataset="cifar10", data_folder=copy, batch_size=4)
    images, labels = next(iter(Shard(job, rank=0, world_size=2)))
    assert (images.shape, labels.shape, labels.dtype) == ((4, 3, 32, 32), (4,), torch.int64)


def test_images_key_limits_the_images_read_from_files(copy):
    images, _ = tensors(load("cifar10", True, copy))
    some, labels = tensors(load("cifar10", True, copy, images=8))
    assert len(some) == 8 and torch.equal(some, images[[n * 20 // 8 for n in range(8)]]) and len({*labels.tolist()}) > 4
    assert len(tensors(load("cifar10", False, copy, images=8))[0]) == 2
    assert len(tensors(load("digits", True, images=100))[0]) == 100
    job = Training(None, dataset="cifar10", data_folder=copy, batch_size=2, images=8)
    assert count_images(job) == 8 and Shard(job, rank=0, world_size=2).steps_per_epoch == 2
    with pytest.raises(InputError, match="images is 21, but cifar10 has 20; use at most 20"):
        load("cifar10", True, copy, images=21)


class EndsThePython:
    """A hostile pickle's object, which runs when it is read."""

    def __reduce__(self):
        return sys.exit, ()


def test_altered_cifar10_is_rejected_and_never_unpickled(tmp_path):
    (write_copy(tmp_path) / "test_batch").write_bytes(pickle.dumps(EndsThePython()))
    for train in (True, False):
        with pytest.raises(InputError, match="batches-py is not the published CIFAR-10; replace it"):
            load("cifar10", train, tmp_path)


def numbered(images, epochs=3, **changed):
    """A training on images whose pixels all differ, so that a pixel shows the position of a crop."""
    return Training(None, dataset="synthetic", images=images, batch_size=2, epochs=epochs, **changed)


def test_augmentation_depends_on_image_and_epoch_only():
    job = numbered(12, image_shape=(1, 5, 4), random_crop=2, flip=True)
    plain, _ = tensors(load_images(job, True))
    epochs = [tensors(Augmented(load_images(job, True), job, epoch))[0] for epoch in (0, 0, 1)]
    assert torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[0], epochs[2])
    seen = set()
    for image, changed in zip(plain, epochs[0], strict=True):
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
        places = [(top, left, mirrored) for top in range(5) for left in range(5) for mirrored in (False, True)]
        cuts = {place: padded[:, place[0] : place[0] + 5, place[1] : place[1] + 4] for place in places}
        cuts = {place: cut.flip(-1) if place[2] else cut for place, cut in cuts.items()}
        [where] = [key for key, cut in cuts.items() if torch.equal(cut, changed)]
        seen.add(where)
    assert len(seen) > 6 and {mirrored for *_, mirrored in seen} == {False, True}
    for ranks in (1, 3):  # all images of the first epoch, whoever takes them
        shards = [Shard(replace(job, epochs=1), rank, ranks) for rank in range(ranks)]
        dealt = torch.cat([images for shard in shards for images, _ in shard])
        assert {row.numpy().tobytes() for row in dealt} == {row.numpy().tobytes() for row in epochs[0]}


def test_batches_resumed_at_a_step_match_an_uninterrupted_run():
    job = numbered(16, image_shape=(1, 3, 3), random_crop=1, flip=True)
    batches = list(Shard(job, 1, 2))
    for ahead in ({}, {"num_workers": 1, "prefetch_factor": 1, "pin_memory": True}):
        rest = list(Shard(replace(job, **ahead), 1, 2).batches(first=5))
        assert len(rest) == len(batches) - 5 == 7
        for (images, labels), (expected, of) in zip(rest, batches[5:], strict=True):
            assert torch.equal(images, expected) and torch.equal(labels, of)
    assert not multiprocessing.active_children()


def test_synthetic_images_have_any_shape_and_are_reproducible():
    changed = {"image_shape": (1, 4, 6), "images": 22, "classes": 5}
    images, labels = tensors(load("synthetic", train=True, **changed))
    assert (images.shape, labels.unique().tolist()) == ((22, 1, 4, 6), [0, 1, 2, 3, 4])
    torch.testing.assert_close(images, tensors(load("synthetic", train=True, **changed))[0])
    held_out, _ = tensors(load("synthetic", train=False, **changed))
    assert len(held_out) == 6 and not torch.equal(held_out, images[:6])


def test_each_picture_folder_is_a_class(tmp_path):
    from PIL import Image

    for where in ("train/cats", "train/dogs", "test/cats", "test/dogs"):
        (tmp_path / where).mkdir(parents=True)
        Image.new("RGB", (20, 10), (255, 0, 0) if "cats" in where else (0, 0, 255)).save(tmp_path / where / "one.png")
    images, labels = tensors(load("imagefolder", True, tmp_path, image_shape=(3, 8, 8), classes=2))
    assert (images.shape, labels.tolist()) == ((2, 3, 8, 8), [0, 1])
    assert images[0, :, 0, 0].tolist() == [2.0, -2.0, -2.0]
    with pytest.raises(InputError, match=r"classes is 10, but .*train has 2 directories; set classes = 2"):
        load("imagefolder", True, tmp_path)
    with pytest.raises(InputError, match="must have a directory of images for each class"):
        load("imagefolder", True, tmp_path / "elsewhere")
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "train").symlink_to("/proc")
    with pytest.raises(InputError, match="is generated by the kernel; pass a directory with images"):
        load("imagefolder", True, tmp_path / "kernel")
