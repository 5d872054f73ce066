"""Arrays as the kernel's functions hand them to each other: where they begin, and how many entries they have.

The state of a run is a tuple of thirty arrays. numba's own arrays are seven numbers each, and taking them apart and
putting them together again at every call was a fifth of what there is to compile. Whoever indexes these keeps within
bounds: there are no negative indices.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator"

import operator
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from numba import typeof
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import NativeValue, lower_builtin, models, register_model, typeof_impl, unbox
from numba.np.numpy_support import from_dtype

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


def lean(arrays: Arrays) -> Arrays:
    """Return a named tuple as machine code takes it lean: with all arrays in it, and in named tuples in it.

    They have one dimension, and their entries follow each other in memory.

    >>> from typing import NamedTuple
    >>> class Two(NamedTuple):
    ...     numbers: Any
    ...     is_there: bool
    >>> found = lean(Two(np.zeros(3), True))
    >>> found.numbers.size, found.is_there
    (3, True)
    """
    values = [lean(value) if isinstance(value, tuple) else value for value in arrays]
    found: Any = _lean_class(type(arrays))(*values)
    found._numba_type_ = _tuple_type(type(arrays), *map(_kind, values))  # which numba asks for first, as it is quick
    return cast(Arrays, found)


def _kind(value: Any) -> Any:
    """Return what says the type of a field: that of an array's entries, numba's of a tuple, Python's of others."""
    if not isinstance(value, np.ndarray):
        return getattr(value, "_numba_type_", type(value))
    assert value.ndim == 1 and value.flags.c_contiguous
    return value.dtype


@cache
def _lean_class(plain: type) -> Any:
    """Return a class of the same named tuples that may know their type."""
    found = type(plain.__name__, (plain,), {})
    typeof_impl.register(found)(lambda value, _: value._numba_type_)
    return found


@cache
def _tuple_type(plain: type, *kinds: Any) -> Any:
    """Return numba's type of a named tuple by what says the types of its fields."""
    return types.NamedTuple([_field_type(kind) for kind in kinds], plain)


def _field_type(kind: Any) -> Any:
    if isinstance(kind, np.dtype):
        return LeanType(from_dtype(kind))
    return kind if isinstance(kind, types.Type) else typeof(kind())


class LeanType(types.Type):
    """numba's type of an array of which only the place and the number of entries are kept."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lean({dtype})")


@register_model(LeanType)
class _Model(models.StructModel):
    def __init__(self, manager: Any, of: LeanType) -> None:
        super().__init__(manager, of, [("address", types.voidptr), ("size", types.intp)])


@unbox(LeanType)
def _unbox(of: LeanType, found: Any, c: Any) -> Any:
    whole = cgutils.create_struct_proxy(types.Array(of.dtype, 1, "C"))(c.context, c.builder)
    failed = c.pyapi.numba_array_adaptor(found, c.builder.bitcast(whole._getpointer(), c.pyapi.voidptr))
    made = cgutils.create_struct_proxy(of)(c.context, c.builder)
    made.address = c.builder.bitcast(whole.data, made.address.type)
    made.size = whole.nitems
    return NativeValue(made._getvalue(), is_error=cgutils.is_not_null(c.builder, failed))


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        rows, index = arguments
        is_ours = isinstance(rows, LeanType) and isinstance(index, types.Integer)
        return signature(rows.dtype, rows, types.intp) if is_ours else None


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        rows, index, _value = arguments
        is_ours = isinstance(rows, LeanType) and isinstance(index, types.Integer)
        return signature(types.none, rows, types.intp, rows.dtype) if is_ours else None


@infer_global(len)
class _Len(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        (rows,) = arguments
        return signature(types.intp, rows) if isinstance(rows, LeanType) else None


def _place(context: Any, builder: Any, of: LeanType, rows: Any, index: Any) -> Any:
    """Return where an entry is."""
    held = context.get_data_type(of.dtype)
    made = cgutils.create_struct_proxy(of)(context, builder, value=rows)
    offset = builder.mul(index, context.get_constant(types.intp, context.get_abi_sizeof(held)))
    return builder.bitcast(builder.gep(made.address, [offset]), held.as_pointer())


@lower_builtin(operator.getitem, LeanType, types.Integer)
def _get_item(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    dtype, at = sig.return_type, _place(context, builder, sig.args[0], *arguments)
    return at if isinstance(dtype, types.Record) else context.unpack_value(builder, dtype, at)


@lower_builtin(operator.setitem, LeanType, types.Integer, types.Any)
def _set_item(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    place = _place(context, builder, sig.args[0], *arguments[:2])
    context.pack_value(builder, sig.args[2], arguments[2], place)
    return context.get_dummy_value()


@lower_builtin(len, LeanType)
def _len(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    return cgutils.create_struct_proxy(sig.args[0])(context, builder, value=arguments[0]).size
