"""Hostile cases of networks in files: what GraphML, XML and JSON allow beside what is read."""

import json
from collections.abc import Iterator

import hostile_files as files
from hostile_runs import Case

NUMBERS = (
    "1_000",
    "0x10",
    " 1e9 ",
    "+1e9",
    "\u0661e9",
    "\uff11",
    "1,5",
    "Infinity",
    "-inf",
    "-0.0",
    "1e-400",
    "NaN",
    "9" * 400,
    "1e" + "9" * 300,
    "1/2",
    "<![CDATA[1e9]]>",
    "1.<!-- a -->2e9",
    "1.<?pi?>2e9",
    "&#49;",
    "&#xD800;",
    "&lt;",
)
NAMES = (
    "h 1",
    "e\u0301",
    " h0",
    "h&#10;0",
    "&#x200b;",
    "&#x202e;",
    "\U0001f600" * 30,
    "x" * 101,
    "x" * 1_000_000,
    "0",
    "-1",
    "1e3",
    "None",
    "h0 - s0",
    "[red]",
    "&lt;",
    "__class__",
)
ENCODINGS = ("utf-7", "utf-16le", "cp1252", "hex", "idna", "EBCDIC-CP-US", "unicode_escape", "UTF-8;", "'")
NODE, BANDWIDTH = '<node id="h1" />', 'attr.name="bandwidth" attr.type="double" />'
KEY = '<key id="d9" for="{}" attr.name="{}" attr.type="{}"/><graph '
XML_CHANGES = (  # beside those of ``hostile_files``
    ("<graphml", '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><graphml'),
    ("<node", "<a>" * 100_000 + "<node"),
    (NODE, '<x:node xmlns:x="urn:x" id="h1"/>'),
    ("<edge source", '<edge xmlns="urn:x" source'),
    ("<data", '<data xmlns=""'),
    ('xmlns="http://graphml.graphdrawing.org/xmlns"', 'xmlns="urn:x"'),
    (NODE, '<node xmlns="" id="h1"/>'),
    (BANDWIDTH, BANDWIDTH.replace(" />", "><default>5</default></key>")),
    (BANDWIDTH, BANDWIDTH.replace(" />", "><x/></key>")),
    ("<graph ", KEY.format("all", "bandwidth", "double")),
    ("<graph ", KEY.format("port", "x", "double")),
    ("<graph ", KEY.format("graph", "node_default", "string")),
    ("<graph ", '<key id="d9" yfiles.type="x"/><graph '),
    (NODE, f'{NODE}<key id="d9" for="node"/>'),
    ("</graphml>", '<key id="d9" for="node"/></graphml>'),
    (NODE, '<node id="h1"><port name="a"><port name="b"/></port></node>'),
    ("<edge source", '<edge sourceport="a" source'),
    (NODE, '<node id="h1"><graph id="g" edgedefault="undirected"><node id="h5"/></graph></node>'),
    (NODE, '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="/etc/passwd"/>'),
    ("<graphml", '<!DOCTYPE x [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><graphml'),
    ("<edge source", '<edge id="e" source'),
    ("<edge source", '<edge directed="False" source'),
    ("<edge source", '<edge bandwidth="5" source'),
    (NODE, f"x = 5 {NODE} y"),
    (NODE, f"<desc>{'<a>' * 50_000}{'</a>' * 50_000}</desc>{NODE}"),
    ("<graph ", '<graph parse.nodes="99" parse.edges="-1" '),
    ("version='1.0'", "version='1.1'"),
    ("<graphml", "<?xml-stylesheet href='x'?><graphml"),
    ("</graphml>", "</graphml><x/>"),
    (NODE, NODE + "".join(f'<node id="n{n}"/>' for n in range(20_000))),
    (NODE, f'{NODE}<data key="d2">host</data>'),
    *(("1.25e9", one) for one in NUMBERS),
    *(("5e-06", one) for one in NUMBERS),
    *(('"h1"', f'"{one}"') for one in NAMES),
    *(("utf-8", one) for one in ENCODINGS),
    *(("'utf-8'?>", f"'{one}'?><!-- \u00e9 -->") for one in ENCODINGS),
)
VALUES = (
    "-0.0",
    "1e-400",
    "5e-324",
    "1.7e308",
    "1e400",
    "9" * 309,
    "9" * 4299,
    "9" * 4400,
    "true",
    "null",
    "01",
    "1.",
    "NaN",
    '"\\ud800"',
    '"\\u0000"',
    '"\\u202e"',
    '"h0"',
    '""',
    "[]",
    "{}",
    "[" * 3000 + "]" * 3000,
    '"' + "x" * 10**6 + '"',
    '1, "a": 1',
    '1, "a": 1, "a": 2',
    "-1",
    "7",
)
PLACES = (
    '"id": "h1"',
    '"kind": "host"',
    '"bandwidth": 1250000000.0',
    '"latency": 5e-06',
    '"source": "h0"',
    '"medium": "fibre"',
    '"directed": false',
    '"multigraph": false',
    '"graph": {}',
    '"shared_bandwidth": 2500000000.0',
)


def systematic_graphs() -> Iterator[Case]:
    """Yield the cases, none of which is drawn."""
    scenario = files.toml(files.SCENARIOS["graphml"])
    yield Case("xml laughs", ("predict", "a.toml"), (("a.toml", scenario), ("net.graphml", files.billion_laughs())))
    for number, (before, after) in enumerate((*files.XML_CHANGES, *XML_CHANGES)):
        content = files.GRAPHML.replace(before, after, 1).encode(errors="replace")
        words = ("predict", "a.toml", *(("--json", "-") if number % 2 else ()))
        yield Case(f"xml {before[:9]} {after[:25]!r}", words, (("a.toml", scenario), ("net.graphml", content)))
    whole, scenario = json.dumps(files.TOPOLOGY), files.toml(files.SCENARIOS["file"])
    for number, place in enumerate(PLACES):
        for shift, value in enumerate(VALUES):
            content = whole.replace(place, f"{place.partition(':')[0]}: {value}", 1).encode()
            engine = ("--engine", "compiled") if (number + shift) % 3 == 0 else ("--json", "-")
            words = ("predict", "a.toml", *engine)
            yield Case(f"node-link {place[:9]} {value[:12]!r}", words, (("a.toml", scenario), ("net.json", content)))
    many = ",".join(f'"k{number}":1' for number in range(50_000))
    for name, text in {
        "doubled at the end": whole.replace('"graph": {}', f'"graph": {{{many},"k49999":2}}'),
        "of many keys": whole.replace('"graph": {}', f'"graph": {{{many}}}'),
        "twice": whole * 2,
        "commented": f"//\n{whole}",
        "of switches": whole.replace('"h1", "kind": "host"', '"h1", "kind": "switch"').replace('"h', '"s'),
        "of one": '{"nodes": [{"id": "h0"}], "edges": []}',
        "of none": '{"nodes": [], "edges": []}',
        "apart": '{"nodes": [{"id": "h0"}, {"id": "h1"}], "edges": []}',
        "of odd names": whole.replace("h0", "{0}%s"),
    }.items():
        there = (("a.toml", scenario), ("net.json", text.encode()))
        yield Case(f"node-link {name}", ("predict", "a.toml"), there)
