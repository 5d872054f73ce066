"""Sample tensors, so that the tensors of many ranks can be compared quickly."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import isclose
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch._subclasses.fake_tensor import FakeTensor

Values = npt.NDArray[np.float64]
MOST = 64  # values in a sample
OF_NUMPY = (torch.float32, torch.float64, torch.int64)  # dtypes that numpy reads without conversion
ROUNDING = 1e-4  # relative difference that counts as rounding
is_close = partial(isclose, rel_tol=1e-3)  # whether two factors are equal up to rounding


def is_plain(tensor: Any) -> bool:
    """Return whether a value is a dense tensor with data, not a DTensor, FakeTensor or meta tensor."""
    is_dense = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return is_dense and not tensor.is_meta


def find_tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors in ``values``, including those in its lists and tuples. Deeper nesting is ignored.

    >>> len(find_tensors([torch.ones(1), 2, [torch.ones(1), None]]))
    2
    """
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += [element for element in value if isinstance(element, torch.Tensor)]
    return tensors


def has_data(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether the first tensor holds values, which a FakeTensor does not. Without tensors, return True."""
    return not (tensors and isinstance(tensors[0], FakeTensor))


def take_sample(tensor: torch.Tensor, most: int = MOST) -> Values:
    """Return at most ``most`` evenly spaced elements as float64. A complex element becomes two values."""
    step = max(1, -(-tensor.numel() // most))
    if tensor.dtype in OF_NUMPY and tensor.is_contiguous():
        values: Values = tensor.detach().numpy().reshape(-1)[::step].astype(np.float64)
        return values
    flat = tensor.detach().reshape(-1)[::step]
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    values = flat.double().numpy().copy()
    return values


def sample_gradient(parameter: torch.Tensor, most: int = MOST) -> Values:
    """Return a sample of a parameter's gradient, or an empty array if the parameter has no gradient."""
    return np.zeros(0) if parameter.grad is None else take_sample(parameter.grad, most)


def are_equal(samples: Sequence[Values]) -> bool:
    """Return whether all samples have the same shape and equal values. NaNs count as equal."""
    first = samples[0]
    return all(sample.shape == first.shape and np.array_equal(sample, first, equal_nan=True) for sample in samples[1:])


def is_constant(sample: Values) -> bool:
    """Return whether a sample is empty or all its values are equal."""
    return sample.size == 0 or bool((sample == sample[0]).all())


def are_unlike(a: Values, b: Values, scale: float) -> bool:
    """Return whether two samples differ in shape, or in over 2 % of their values by more than 1 % of ``scale``."""
    if a.shape != b.shape:
        return True
    with np.errstate(invalid="ignore"):
        off = np.abs(a - b) > ROUNDING * np.abs(a) + 0.01 * scale
    off |= np.isfinite(a) != np.isfinite(b)
    return bool(off.size) and bool(off.mean() > 0.02)


def find_ratio(a: Values, b: Values, rounding: float = ROUNDING) -> float | None:
    """Return ``r`` if ``a`` equals ``r * b`` up to rounding. Return None if ``b`` is zero or there is no such ``r``.

    >>> find_ratio(np.array([2.0, 0.0, 6.0]), np.array([1.0, 0.0, 3.0]))
    2.0
    """
    if a.shape != b.shape:
        return None
    nonzero = np.abs(b) > 1e-30
    if not nonzero.any():
        return None
    ratios = np.sort(a[nonzero] / b[nonzero])
    ratio = float(ratios[len(ratios) // 2])
    return ratio if np.abs(a - ratio * b).max() <= rounding * np.abs(a).max() else None
