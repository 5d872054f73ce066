"""Numbers of TOML files that remember how they were written."""


class TomlFloat(float):
    """A number of a TOML file that remembers how it was written: NCCL 2.30 is not NCCL 2.3.

    >>> TomlFloat("2.30").text
    '2.30'
    """

    def __new__(cls, text: str) -> "TomlFloat":
        """Return the number that a text stands for."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str
