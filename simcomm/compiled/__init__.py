"""The parts of the compiled engine; ``simcomm.compiled_engine`` puts them together."""
