"""Check the names that ``collectives`` exports."""

import inspect

import collectives


def test_exported_names_have_docstrings() -> None:
    assert sorted(collectives.__all__) == collectives.__all__
    for name in collectives.__all__:
        exported = getattr(collectives, name)
        assert inspect.getdoc(exported), name
        assert exported.__module__.startswith("collectives.")


def test_exported_functions_have_examples() -> None:
    """Exceptions are raised in other examples, programs yield operations, and ``build_schedule`` shows a schedule."""
    for name in {*collectives.__all__} - {"Kind", "Operation", "Schedule"}:
        exported = getattr(collectives, name)
        if not (isinstance(exported, type) and issubclass(exported, Exception)):
            assert ">>> " in (inspect.getdoc(exported) or ""), name
