"""The state of a run as machine code takes it: one place, where a table says where all arrays of it are.

That state is a tuple of thirty arrays, of which numba hands on seven numbers each. Taking them apart and putting them
together again at every call was much of what there was to compile, and made calls so slow that all functions had to be
inlined. A *lean* tuple is the address of a table of 64-bit words: two for an array, where it begins and how many
entries it has, those of its fields for a tuple in it, and one for a truth value. An array of it, taken by itself, is
the address of its two words. The table never changes, which its loads say, so that LLVM takes a word from it once
however often it is asked for.

Whoever indexes these arrays keeps within bounds: there are no negative indices.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator"

import operator
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import (
    NativeValue,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import from_dtype

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])
WORD = ir.IntType(64)
WORD_BYTES = 8
LONGEST_NAME = 24  # of a type; functions are named by those of what they take, and LLVM reads the names again and again


def lean(arrays: Arrays) -> Arrays:
    """Return a named tuple as machine code takes it: of arrays, truth values, and named tuples of such.

    Arrays have one dimension, and their entries follow each other in memory.

    >>> from typing import NamedTuple
    >>> class Two(NamedTuple):
    ...     numbers: Any
    ...     is_there: bool
    >>> found = lean(Two(np.zeros(3), True))
    >>> found.numbers.size, found.is_there
    (3, True)
    """
    found: Any = _lean_class(type(arrays))(*arrays)
    found._table = np.array(_words(arrays), np.int64)
    found._address = found._table.ctypes.data
    found._numba_type_ = _type_of(arrays)  # which numba asks for first, as it is quick
    return cast(Arrays, found)


def _words(value: Any) -> list[int]:
    """Return what the table says of a value."""
    if isinstance(value, tuple):
        return [word for field in value for word in _words(field)]
    if isinstance(value, bool):
        return [int(value)]
    assert value.ndim == 1 and value.flags.c_contiguous
    return [value.ctypes.data, len(value)]


@cache
def _lean_class(plain: type) -> Any:
    """Return a class of the same named tuples that may know their type and have a table."""
    found = type(plain.__name__, (plain,), {})
    typeof_impl.register(found)(lambda value, _: value._numba_type_)
    return found


def _type_of(value: Any) -> "LeanArray | LeanTuple | types.Type":
    """Return numba's type of a value."""
    if isinstance(value, tuple):
        return LeanTuple(type(value), [_type_of(field) for field in value])
    return types.boolean if isinstance(value, bool) else _array_type(value.dtype)


class LeanArray(types.Type):
    """numba's type of an array in a lean tuple."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.words = from_dtype(dtype), 2
        self.itemsize = dtype.itemsize
        super().__init__(name=_short(f"Array {self.dtype}"))


_array_type = cache(LeanArray)


class LeanTuple(types.Type):
    """numba's type of a lean tuple."""

    def __init__(self, plain: Any, fields: list[Any]) -> None:
        self.fields = dict(zip(plain._fields, fields, strict=True))
        counts = [getattr(field, "words", 1) for field in fields]
        self.words = sum(counts)
        self.first_word = {name: sum(counts[:at]) for at, name in enumerate(self.fields)}
        super().__init__(name=_short(f"{plain.__name__} {self.fields}"))


def _short(name: str) -> str:
    """Return a name of a type with a hash in place of what is long."""
    return name if len(name) <= LONGEST_NAME else f"{name.split()[0]} {sha256(name.encode()).hexdigest()[:12]}"


@register_model(LeanArray)
@register_model(LeanTuple)
class _Address(models.OpaqueModel):
    pass


@unbox(LeanTuple)
def _unbox(_: LeanTuple, found: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(found, "_address")
    address = c.builder.inttoptr(c.pyapi.long_as_ulonglong(number), c.context.get_value_type(types.voidptr))
    c.pyapi.decref(number)
    return NativeValue(address, is_error=c.pyapi.c_api_error())


@infer_getattr
class _Fields(AttributeTemplate):
    key = LeanTuple

    def generic_resolve(self, value: LeanTuple, attr: str) -> Any:  # type: ignore[override]
        return value.fields.get(attr)


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        rows, index = arguments
        is_ours = isinstance(rows, LeanArray) and isinstance(index, types.Integer)
        return signature(rows.dtype, rows, types.intp) if is_ours else None


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        rows, index, _value = arguments
        is_ours = isinstance(rows, LeanArray) and isinstance(index, types.Integer)
        return signature(types.none, rows, types.intp, rows.dtype) if is_ours else None


@infer_global(len)
class _Len(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        (rows,) = arguments
        return signature(types.intp, rows) if isinstance(rows, LeanArray) else None


def _word_at(builder: Any, table: Any, word: int) -> Any:
    """Return the address of a word of a table."""
    return builder.gep(table, [ir.Constant(WORD, word * WORD_BYTES)])


def _word(builder: Any, table: Any, word: int, kind: Any = WORD) -> Any:
    """Return a word of a table, a whole number unless said."""
    found = builder.load(builder.bitcast(_word_at(builder, table, word), kind.as_pointer()))
    found.set_metadata("invariant.load", builder.module.add_metadata([]))
    return found


@lower_getattr_generic(LeanTuple)
def _field(_: Any, builder: Any, of: LeanTuple, table: Any, name: str) -> Any:
    word = of.first_word[name]
    if isinstance(of.fields[name], types.Boolean):
        return builder.trunc(_word(builder, table, word), ir.IntType(1))
    return _word_at(builder, table, word)


def _place(context: Any, builder: Any, of: LeanArray, rows: Any, index: Any) -> Any:
    """Return where an entry is."""
    offset = builder.mul(index, ir.Constant(index.type, of.itemsize))
    place = builder.gep(_word(builder, rows, 0, rows.type), [offset])
    return builder.bitcast(place, context.get_data_type(of.dtype).as_pointer())


@lower_builtin(operator.getitem, LeanArray, types.Integer)
def _get_item(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    dtype, at = sig.return_type, _place(context, builder, sig.args[0], *arguments)
    return at if isinstance(dtype, types.Record) else context.unpack_value(builder, dtype, at)


@lower_builtin(operator.setitem, LeanArray, types.Integer, types.Any)
def _set_item(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    place = _place(context, builder, sig.args[0], *arguments[:2])
    context.pack_value(builder, sig.args[2], arguments[2], place)
    return context.get_dummy_value()


@lower_builtin(len, LeanArray)
def _len(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
    return _word(builder, arguments[0], 1)
