"""Hostile cases of networks in files: everything that GraphML, XML and JSON allow."""

import json
from collections.abc import Iterator

import hostile_files as files
from hostile_runs import Case

NODE, BANDWIDTH = '<node id="h1" />', 'attr.name="bandwidth" attr.type="double" />'
KEY = '<key id="d9" for="{}" attr.name="{}" attr.type="{}"/><graph '
ENTITY = '<!DOCTYPE x [<!ENTITY {} SYSTEM "file:///etc/passwd">{}]><graphml'
XML_CHANGES = (  # in addition to those of ``hostile_files``
    ("<graphml", ENTITY.format("e", "")),
    ("<graphml", ENTITY.format("% p", " %p;")),
    ("<node", "<a>" * 100_000 + "<node"),
    (NODE, '<x:node xmlns:x="urn:x" id="h1"/>'),
    ("<data", '<data xmlns=""'),
    ('xmlns="http://graphml.graphdrawing.org/xmlns"', 'xmlns="urn:x"'),
    (BANDWIDTH, BANDWIDTH.replace(" />", "><default>5</default></key>")),
    ("<graph ", KEY.format("all", "bandwidth", "double")),
    ("<graph ", KEY.format("graph", "node_default", "string")),
    ("</graphml>", '<key id="d9" for="node"/></graphml>'),
    (NODE, '<node id="h1"><port name="a"><port name="b"/></port></node>'),
    (NODE, '<node id="h1"><graph id="g" edgedefault="undirected"><node id="h5"/></graph></node>'),
    (NODE, '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="/etc/passwd"/>'),
    ("<edge source", '<edge directed="False" source'),
    (NODE, f"<desc>{'<a>' * 50_000}{'</a>' * 50_000}</desc>{NODE}"),
    ("<graph ", '<graph parse.nodes="99" parse.edges="-1" '),
    ("</graphml>", "</graphml><x/>"),
    (NODE, NODE + "".join(f'<node id="n{n}"/>' for n in range(20_000))),
    *((place, text) for place in ("1.25e9", "5e-06") for text in ("1_000", "0x10", "1,5", "&lt;", "<![CDATA[1e9]]>")),
    *(('"h1"', f'"{text}"') for text in ("h 1", "h&#10;0", "&#x202e;", "x" * 1_000_000, "h0 - s0", "__class__")),
    *(("utf-8", encoding) for encoding in ("utf-7", "hex", "idna", "unicode_escape", "'")),
)
VALUES = ("1e400", "9" * 4400, "null", "01", "NaN", '"\\ud800"', '"h0"', "[" * 3000 + "]" * 3000, '1, "a": 1, "a": 2')
PLACES = (
    '"id": "h1"', '"kind": "host"', '"bandwidth": 1250000000.0', '"latency": 5e-06', '"source": "h0"',
    '"medium": "fibre"', '"directed": false', '"graph": {}',
)  # fmt: skip


def systematic_graphs() -> Iterator[Case]:
    """Yield the cases, none of which is drawn."""
    scenario = files.toml(files.SCENARIOS["graphml"])
    yield Case("xml laughs", ("predict", "a.toml"), (("a.toml", scenario), ("net.graphml", files.billion_laughs())))
    for number, (before, after) in enumerate((*files.XML_CHANGES, *XML_CHANGES)):
        content = files.GRAPHML.replace(before, after, 1).encode(errors="replace")
        words = ("predict", "a.toml", *(("--json", "-") if number % 2 else ()))
        yield Case(f"xml {before[:9]} {after[:25]!r}", words, (("a.toml", scenario), ("net.graphml", content)))
    whole, scenario = json.dumps(files.TOPOLOGY), files.toml(files.SCENARIOS["file"])
    many = ",".join(f'"k{number}":1' for number in range(50_000))
    texts = {
        "of many keys": whole.replace('"graph": {}', f'"graph": {{{many},"k49999":2}}'),
        "twice": whole * 2,
        "of switches": whole.replace('"h1", "kind": "host"', '"h1", "kind": "switch"').replace('"h', '"s'),
        "of one": '{"nodes": [{"id": "h0"}], "edges": []}',
        "of none": '{"nodes": [], "edges": []}',
        "apart": '{"nodes": [{"id": "h0"}, {"id": "h1"}], "edges": []}',
    }
    for place in PLACES:
        for value in VALUES:
            texts[f"{place[:9]} {value[:12]!r}"] = whole.replace(place, f"{place.partition(':')[0]}: {value}", 1)
    for name, text in texts.items():
        there = (("a.toml", scenario), ("net.json", text.encode()))
        yield Case(f"node-link {name}", ("predict", "a.toml", "--json", "-"), there)
