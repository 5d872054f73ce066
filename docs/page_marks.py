"""Pages of which a program writes a part: the text between two marks."""


def write_between(page: str, name: str, text: str) -> str:
    """Return the page with ``text``, of whole lines, between the marks of that name. Raise ValueError without marks.

    >>> write_between("<!-- a: begin -->\\nold\\n<!-- a: end -->\\n", "a", "new\\n")
    '<!-- a: begin -->\\nnew\\n<!-- a: end -->\\n'
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"the page has no marks of {name}")
    return f"{before}{begin}{text}{end}{after}"
