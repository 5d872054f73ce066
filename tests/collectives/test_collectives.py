"""What ``collectives`` exports."""

import inspect

import collectives


def test_what_is_exported_is_there_and_says_what_it_is() -> None:
    assert sorted(collectives.__all__) == collectives.__all__
    for name in collectives.__all__:
        exported = getattr(collectives, name)
        assert inspect.getdoc(exported), name
        assert exported.__module__.startswith("collectives.")


def test_every_function_and_record_shows_an_example() -> None:
    """Exceptions are raised in other examples, programs yield operations, and ``build_schedule`` shows a schedule."""
    for name in {*collectives.__all__} - {"Kind", "Operation", "Schedule"}:
        exported = getattr(collectives, name)
        if not (isinstance(exported, type) and issubclass(exported, Exception)):
            assert ">>> " in (inspect.getdoc(exported) or ""), name
