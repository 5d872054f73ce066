"""The data sets: real images, a split that never moves, and a clear word where files are missing."""

import dataclasses
import hashlib
import multiprocessing
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from collectives.errors import InputError
from collectives.training.workload import Training
from realcomm.training import cifar10
from realcomm.training.datasets import Augmented, Shard, describe_images, load_images
from realcomm.training.trainer import count_images


def load(dataset, train, folder=None, **changed):
    return load_images(Training(None, dataset=dataset, data_folder=folder, **changed), train)


def tensors(dataset):
    images, labels = zip(*dataset, strict=True)
    return torch.stack(images), torch.tensor([int(label) for label in labels])


@pytest.fixture(scope="module")
def digits():
    """Images and labels of the digits that are trained on, and of those that are held out."""
    return [tensors(load("digits", train)) for train in (True, False)]


def test_digits_are_all_there_once_and_normalised_by_what_is_trained_on(digits):
    (train, _), (held_out, _) = digits
    assert train.shape == (1437, 3, 32, 32) and held_out.shape == (360, 3, 32, 32)
    assert len(torch.cat([train, held_out]).unique(dim=0)) == 1797
    assert train.dtype == torch.float32
    assert train.mean().item() == pytest.approx(0, abs=1e-5) and train.std().item() == pytest.approx(1, abs=1e-3)


def test_digits_keep_the_shares_of_the_classes_and_are_the_same_on_every_rank(digits):
    (images, train), (_, held_out) = digits
    shares = train.bincount(minlength=10) / len(train) - held_out.bincount(minlength=10) / len(held_out)
    assert shares.abs().max() < 0.005
    again, labels = tensors(load("digits", train=True))
    assert torch.equal(images, again) and torch.equal(train, labels)


def test_an_unknown_data_set_is_refused():
    with pytest.raises(InputError, match=r"'imagenet' is not known; there are digits, cifar10"):
        load("imagenet", train=True)


def test_cifar10_without_a_folder_is_drawn_and_that_is_said():
    images, labels = tensors(load("cifar10", train=True, images=20))
    assert images.shape == (20, 3, 32, 32) and labels.tolist() == [*range(10), *range(10)]
    by_class = images.mean(dim=(1, 2, 3)).view(2, 10)
    assert (by_class[:, 9] > by_class[:, 0]).all()  # there is something to learn
    assert len(tensors(load("cifar10", train=False, images=20))[0]) == 5
    [said] = describe_images(Training(None, dataset="cifar10", images=20))
    assert said.startswith("dataset cifar10 without data_folder: 20 images of its shape are drawn at random")
    assert describe_images(Training(None)) == []


def test_missing_cifar10_names_the_folder_and_what_is_accepted(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere", Path("/proc/self")):
        with pytest.raises(InputError, match=rf"{folder}: CIFAR-10 is not there.*-py or cifar-10-batches-bin"):
            load("cifar10", train=True, folder=folder)


FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
LABELS = {file: [(number + image) % 10 for image in range(4)] for number, file in enumerate(FILES)}


def pixels_of(file):
    """Four images of a file, uint8 [4, 3072], as nothing else has them."""
    return np.random.default_rng(FILES.index(file)).integers(0, 256, (4, 3072), dtype=np.uint8)


def write_copy(folder, layout, protocol=2):
    """Write a small copy of CIFAR-10, in the layout for Python or in the binary one; return where its files are."""
    where = folder / layout.folder
    where.mkdir(parents=True)
    for file in FILES:
        labels, pixels = np.array(LABELS[file], np.uint8), pixels_of(file)
        if layout is cifar10.BINARY:
            (where / f"{file}.bin").write_bytes(np.hstack([labels[:, None], pixels]).tobytes())
        else:
            batch = {b"batch_label": b"one", b"labels": LABELS[file], b"data": pixels, b"filenames": [b"a.png"] * 4}
            (where / file).write_bytes(pickle.dumps(batch, protocol=protocol))
    return where


@pytest.fixture(params=[cifar10.PYTHON, cifar10.BINARY], ids=["python", "binary"])
def layout(request):
    return request.param


def test_both_formats_have_the_pixels_and_labels_of_their_files(layout, tmp_path):
    where = write_copy(tmp_path, layout)
    for folder in (tmp_path, where):
        read = cifar10.read_cifar10(folder, train=True, verify=False)
        assert np.array_equal(read.pixels.reshape(20, 3072), np.vstack([pixels_of(file) for file in FILES[:5]]))
        assert read.labels.tolist() == [label for file in FILES[:5] for label in LABELS[file]]
        assert np.array_equal(cifar10.read_cifar10(folder, False, False).pixels.reshape(4, 3072), pixels_of(FILES[5]))


def test_images_of_cifar10_are_normalised_and_dealt_like_any_other(layout, tmp_path):
    write_copy(tmp_path, layout)
    images, labels = tensors(load("cifar10", True, tmp_path, verify=False))
    assert images.shape == (20, 3, 32, 32) and images.dtype == torch.float32 and labels[:4].tolist() == [0, 1, 2, 3]
    first = pixels_of("data_batch_1").reshape(4, 3, 32, 32)[1, :, 5, 7] / 255
    expected = [(first[0] - 0.4914) / 0.247, (first[1] - 0.4822) / 0.2435, (first[2] - 0.4465) / 0.2616]
    assert images[1, :, 5, 7].tolist() == pytest.approx(expected, abs=1e-5)
    job = Training(None, dataset="cifar10", data_folder=tmp_path, verify=False, batch_size=4)
    images, labels = next(iter(Shard(job, rank=0, world_size=2)))
    assert (images.shape, labels.shape, labels.dtype) == ((4, 3, 32, 32), (4,), torch.int64)


def test_as_many_images_as_are_asked_for_are_taken_of_what_lies_in_files(tmp_path):
    write_copy(tmp_path, cifar10.PYTHON)
    whole, _ = tensors(load("cifar10", True, tmp_path, verify=False))
    some, labels = tensors(load("cifar10", True, tmp_path, verify=False, images=8))
    assert len(some) == 8 and torch.equal(some, whole[[n * 20 // 8 for n in range(8)]]) and len({*labels.tolist()}) > 4
    assert len(tensors(load("cifar10", False, tmp_path, verify=False, images=8))[0]) == 2
    assert len(tensors(load("digits", True, images=100))[0]) == 100
    job = Training(None, dataset="cifar10", data_folder=tmp_path, verify=False, batch_size=2, images=8)
    assert count_images(job) == 8 and Shard(job, rank=0, world_size=2).steps_per_epoch == 2
    with pytest.raises(InputError, match="images is 21, but cifar10 has 20; give at most so many"):
        load("cifar10", True, tmp_path, verify=False, images=21)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_any_protocol_and_of_newer_pythons_is_read(protocol, tmp_path):
    where = write_copy(tmp_path, cifar10.PYTHON, protocol)
    texts = {"data": np.asfortranarray(pixels_of("test_batch")), "labels": np.array([3, 2, 1, 9])}
    (where / "test_batch").write_bytes(pickle.dumps(texts, protocol=protocol))
    read = cifar10.read_cifar10(where, train=False, verify=False)
    assert np.array_equal(read.pixels.reshape(4, 3072), texts["data"]) and read.labels.tolist() == [3, 2, 1, 9]
    assert len(cifar10.read_cifar10(where, train=True, verify=False).labels) == 20


def test_an_altered_copy_is_named_and_taken_only_unverified(layout, tmp_path, monkeypatch):
    where = write_copy(tmp_path, layout)
    with pytest.raises(InputError, match=rf"{where}/data_batch_1\S* is not as published: its (MD5|SHA1) is \w+, CIFAR"):
        load("cifar10", True, tmp_path)
    contents = [(where / f"{file}{layout.suffix}").read_bytes() for file in FILES]
    sums = tuple(hashlib.new(layout.algorithm, content).hexdigest() for content in contents)
    published = dataclasses.replace(layout, digests=sums)
    monkeypatch.setattr(cifar10, "PYTHON" if layout is cifar10.PYTHON else "BINARY", published)
    assert len(load("cifar10", True, tmp_path)) == 20
    changed = where / f"data_batch_3{layout.suffix}"
    changed.write_bytes((where / f"data_batch_4{layout.suffix}").read_bytes())
    assert len(load("cifar10", False, tmp_path)) == 4
    with pytest.raises(InputError, match=rf"{changed} is not as .* give verify = false to train on it as it is"):
        load("cifar10", True, tmp_path)
    job = Training(None, dataset="cifar10", data_folder=tmp_path, verify=False)
    [said] = describe_images(job)
    assert said.startswith(f"warning: {changed} is not as published") and len(load_images(job, True)) == 20


class EndsThePython:
    """What a hostile pickle may hold: it runs as soon as it is read."""

    def __reduce__(self):
        return sys.exit, ()


GOOD = {"data": pixels_of("test_batch"), "labels": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (pickle.dumps(EndsThePython()), "would execute 'sys.exit', which CIFAR-10 never needs"),
        (pickle.dumps(GOOD | {"labels": EndsThePython()}), "would execute 'sys.exit'"),
        (pickle.dumps(GOOD)[:-900], "is no batch of CIFAR-10 for Python"),
        (b"", "is no batch of CIFAR-10 for Python"),
        (b"PNG", "is no batch of CIFAR-10 for Python"),
        (b"\x80\x04r\xff\xff\xff\x7f.", "is no batch of CIFAR-10 for Python"),  # a memo of 2**31 entries
        (pickle.dumps([1]), "it holds no dict"),
        (pickle.dumps({"labels": [1]}), "data is no array of uint8 with 3072 numbers an image"),
        (pickle.dumps(GOOD | {"data": GOOD["data"][:, :100]}), "data is no array of uint8 with 3072"),
        (pickle.dumps(GOOD | {"data": GOOD["data"].astype(float)}), "an array that is none of whole numbers"),
        (pickle.dumps(GOOD | {"data": np.array([{}])}), "an array that is none of whole numbers"),
        (pickle.dumps(GOOD | {"data": GOOD["data"].astype(">i4")}), "its numbers are big-endian"),
        (pickle.dumps(GOOD | {"labels": [0, 1, 2]}), "has 4 images and 3 labels; each image is to have one"),
        (pickle.dumps(GOOD | {"labels": [0, 1, 2, 10]}), "labels is no list of whole numbers from 0 to 9"),
        (pickle.dumps(GOOD | {"labels": np.array([0, 1, -2, 9])}), "the label of image 2 is -2; labels are 0 to 9"),
        (pickle.dumps(GOOD | {"labels": 3}), "labels is no list"),
        (b"cnumpy\nndarray\n(dS'__doc__'\nS'x'\nsb.", "is no batch of CIFAR-10 for Python"),  # changes a class
    ],
)
def test_a_file_for_python_that_is_none_is_named_and_executes_nothing(held, message, tmp_path):
    where = write_copy(tmp_path, cifar10.PYTHON)
    (where / "test_batch").write_bytes(held)
    with pytest.raises(InputError, match=message) as refused:
        cifar10.read_cifar10(tmp_path, train=False, verify=False)
    assert str(where / "test_batch") in str(refused.value)


def test_a_binary_file_that_is_none_is_named(tmp_path):
    where = write_copy(tmp_path, cifar10.BINARY)
    good = (where / "test_batch.bin").read_bytes()
    for held, message in (
        (good[:-1], "test_batch.bin is cut off: it has 12291 bytes, no multiple of the 3073"),
        (b"", "test_batch.bin is cut off"),
        (b"\x0b" + good[1:], "the label of image 0 is 11; labels are 0 to 9"),
    ):
        (where / "test_batch.bin").write_bytes(held)
        with pytest.raises(InputError, match=message):
            cifar10.read_cifar10(tmp_path, train=False, verify=False)
    (where / "data_batch_4.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_4.bin: no such file; CIFAR-10 has data_batch_1, "):
        cifar10.read_cifar10(where, train=True, verify=False)


def numbered(images, epochs=3, **changed):
    """A training on images of which no two pixels are alike, so that one says where it was cut from."""
    return Training(None, dataset="synthetic", images=images, batch_size=2, epochs=epochs, **changed)


def test_crops_and_mirrors_are_those_of_the_image_and_epoch_on_any_number_of_ranks():
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


def test_batches_from_a_step_on_are_those_of_the_whole_training_with_loaders_too():
    job = numbered(16, image_shape=(1, 3, 3), random_crop=1, flip=True)
    whole = list(Shard(job, 1, 2))
    for ahead in ({}, {"num_workers": 1, "prefetch_factor": 1, "pin_memory": True}):
        rest = list(Shard(replace(job, **ahead), 1, 2).batches(first=5))
        assert len(rest) == len(whole) - 5 == 7
        for (images, labels), (expected, of) in zip(rest, whole[5:], strict=True):
            assert torch.equal(images, expected) and torch.equal(labels, of)
    assert not multiprocessing.active_children()


def test_synthetic_images_have_any_shape_and_are_the_same_every_time():
    changed = {"image_shape": (1, 4, 6), "images": 22, "classes": 5}
    images, labels = tensors(load("synthetic", train=True, **changed))
    assert (images.shape, labels.unique().tolist()) == ((22, 1, 4, 6), [0, 1, 2, 3, 4])
    torch.testing.assert_close(images, tensors(load("synthetic", train=True, **changed))[0])
    held_out, _ = tensors(load("synthetic", train=False, **changed))
    assert len(held_out) == 6 and not torch.equal(held_out, images[:6])


def test_a_folder_of_pictures_has_a_class_for_each_folder(tmp_path):
    from PIL import Image

    for where in ("train/cats", "train/dogs", "test/cats", "test/dogs"):
        (tmp_path / where).mkdir(parents=True)
        Image.new("RGB", (20, 10), (255, 0, 0) if "cats" in where else (0, 0, 255)).save(tmp_path / where / "one.png")
    images, labels = tensors(load("imagefolder", True, tmp_path, image_shape=(3, 8, 8), classes=2))
    assert (images.shape, labels.tolist()) == ((2, 3, 8, 8), [0, 1])
    assert images[0, :, 0, 0].tolist() == [2.0, -2.0, -2.0]
    with pytest.raises(InputError, match=r"classes is 10, but .*train has 2; give classes = 2"):
        load("imagefolder", True, tmp_path)
    with pytest.raises(InputError, match="no pictures in a folder of each class there"):
        load("imagefolder", True, tmp_path / "elsewhere")
