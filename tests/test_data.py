"""The data sets: real images, a split that never moves, and a clear word where files are missing."""

import hashlib
import pickle
import sys

import numpy as np
import pytest
import torch

from collectives.errors import InputError
from collectives.training.workload import Training
from realcomm.training.datasets import Shard, load_images


class EndsThePython:
    """What a hostile pickle may hold: it runs as soon as it is read."""

    def __reduce__(self):
        return sys.exit, ()


def load(dataset, train, folder=None, **changed):
    return load_images(Training(None, dataset=dataset, data_folder=folder, **changed), train)


def tensors(dataset):
    images, labels = zip(*dataset, strict=True)
    return torch.stack(images), torch.tensor([int(label) for label in labels])


def test_digits_are_all_there_once():
    train, _ = tensors(load("digits", train=True))
    held_out, _ = tensors(load("digits", train=False))
    assert train.shape == (1437, 3, 32, 32) and held_out.shape == (360, 3, 32, 32)
    assert len(torch.cat([train, held_out]).unique(dim=0)) == 1797


def test_digits_are_normalised_by_what_is_trained_on():
    images, _ = tensors(load("digits", train=True))
    assert images.dtype == torch.float32
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std().item() == pytest.approx(1, abs=1e-3)


def test_digits_keep_the_shares_of_the_classes():
    _, train = tensors(load("digits", train=True))
    _, held_out = tensors(load("digits", train=False))
    shares = train.bincount(minlength=10) / len(train) - held_out.bincount(minlength=10) / len(held_out)
    assert shares.abs().max() < 0.005


def test_digits_are_the_same_on_every_rank():
    images, labels = tensors(load("digits", train=True))
    again, labels_again = tensors(load("digits", train=True))
    assert torch.equal(images, again) and torch.equal(labels, labels_again)


def test_an_unknown_data_set_is_refused():
    with pytest.raises(InputError, match=r"'imagenet' is not known; there are digits, cifar10"):
        load("imagenet", train=True)


def test_cifar10_without_a_folder_is_refused():
    with pytest.raises(InputError, match="needs data_folder"):
        load("cifar10", train=True)


def test_missing_cifar10_names_the_folder_and_what_is_accepted(tmp_path):
    with pytest.raises(InputError, match=rf"{tmp_path}: CIFAR-10 is not there.*cifar-10-batches-py"):
        load("cifar10", train=True, folder=tmp_path)


def test_altered_cifar10_is_refused_before_it_is_unpickled(cifar10_folder):
    for batch in (cifar10_folder / "cifar-10-batches-py").iterdir():
        batch.write_bytes(pickle.dumps(EndsThePython()))
    with pytest.raises(InputError, match="CIFAR-10 is not there"):
        load("cifar10", train=False, folder=cifar10_folder)


def test_cifar10_is_read_in_its_published_layout(cifar10_folder):
    images, labels = tensors(load("cifar10", train=True, folder=cifar10_folder))
    assert images.shape == (20, 3, 32, 32) and images.dtype == torch.float32
    assert labels.tolist() == [*range(10), *range(10)]
    normalised = [(3 / 255 - 0.4914) / 0.247, -0.4822 / 0.2435, -0.4465 / 0.2616]
    assert images[3, :, 0, 0].tolist() == pytest.approx(normalised, abs=1e-4)


def test_cifar10_is_dealt_in_batches_like_any_other(cifar10_folder):
    job = Training(None, dataset="cifar10", data_folder=str(cifar10_folder), batch_size=4)
    images, labels = next(iter(Shard(job, rank=0, world_size=2)))
    assert (images.shape, images.dtype) == ((4, 3, 32, 32), torch.float32)
    assert (labels.shape, labels.dtype) == ((4,), torch.int64)


@pytest.fixture
def cifar10_folder(tmp_path, monkeypatch):
    """A folder in CIFAR-10's layout: two training batches and a test batch of ten images; image k has red pixels k."""
    from torchvision.datasets import CIFAR10

    base = tmp_path / "cifar-10-batches-py"
    base.mkdir()
    pixels = np.zeros((10, 3, 32, 32), dtype=np.uint8)
    pixels[:, 0] = np.arange(10)[:, None, None]
    batch = {"data": pixels.reshape(10, -1), "labels": list(range(10))}
    sums = {name: _write(base / name, batch) for name in ("data_batch_1", "data_batch_2", "test_batch")}
    meta = {"filename": "batches.meta", "key": "label_names"}
    meta["md5"] = _write(base / "batches.meta", {"label_names": list("0123456789")})
    monkeypatch.setattr(CIFAR10, "train_list", [[name, sums[name]] for name in ("data_batch_1", "data_batch_2")])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", meta)
    return tmp_path


def _write(path, content):
    path.write_bytes(pickle.dumps(content))
    return hashlib.md5(path.read_bytes()).hexdigest()


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
