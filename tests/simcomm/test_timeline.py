"""Gradient buckets during backward: how torch fills them, and their timeline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import _compute_bucket_assignment_by_size  # type: ignore[attr-defined]
from torchvision.models import resnet18

from collectives.training.gradients import BUCKET_BYTES, FIRST_BYTES, Gradient, fill_buckets
from simcomm.timeline import overlap


def test_gradient_buckets_match_torch():
    parameters = list(reversed(list(resnet18(num_classes=10).parameters())))
    by_torch, _ = _compute_bucket_assignment_by_size(parameters, [FIRST_BYTES, BUCKET_BYTES])
    expected = [sum(parameters[index].nbytes for index in bucket) for bucket in by_torch]
    assert [bucket.nbytes for bucket in fill_buckets([Gradient(p.nbytes, 0.0) for p in parameters])] == expected


def test_overlap_hides_buckets_without_slowdown():
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=0.0).finished == pytest.approx(1.1)
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=1.0).finished == pytest.approx(1.4)
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=1.5).finished == pytest.approx(1.0 + 0.45 + 0.1)


shares = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 2)), max_size=6)


@given(backward=st.floats(0.01, 10), buckets=shares, slowdown=st.floats(0, 2))
def test_overlap_conserves_computing_and_communication(
    backward: float, buckets: list[tuple[float, float]], slowdown: float
):
    ready = sorted(share for share, _ in buckets)
    seconds = [alone for _, alone in buckets]
    timeline = overlap(backward, ready, seconds, slowdown)
    assert backward - 1e-9 <= timeline.computed <= backward + slowdown * sum(seconds) + 1e-9
    assert timeline.finished <= backward + max(1.0, slowdown) * sum(seconds) + 1e-9
    ends = [0.0, *(end for _, end in timeline.buckets)]
    for before, (begin, end), alone in zip(ends, timeline.buckets, seconds, strict=False):
        assert begin >= before - 1e-12 and end - begin >= alone - 1e-9
