"""Wrong files and wrong clusters: refused with the file, the key, the value and what is accepted."""

from pathlib import Path

import pytest
from scenario_texts import ASKS, HERE, LINKS, STAR, changed, check_refused, write

from collectives import InputError
from scenarios import load
from scenarios.toml_files import shipped

UNITS = "write a number and one of bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s"
FORMS = (
    'give exactly one of preset = "this-machine", topology = "star" with hosts, bandwidth and latency, '
    "system with a described system, or [[cluster.link]] tables"
)


WRONG = {
    "unknown key": (
        STAR + "worldsize = 2\n" + ASKS,
        "cluster.worldsize is no known key; did you mean world_size? (of ",
    ),
    "unknown key, nothing close": (
        STAR + "x = 2\n" + ASKS,
        "cluster.x is no known key; there are topology, hosts, bandwidth, latency, world_size",
    ),
    "unknown section": (STAR + ASKS + "[trianing]\n", "trianing is no known key; did you mean training?"),
    "misspelt key of a star": (
        changed(STAR, "hosts", "host") + ASKS,
        "cluster.host is no known key; did you mean hosts?",
    ),
    "misspelt key of a link": (
        changed(LINKS, 'bandwidth = "1 G', 'bandwith = "1 G') + ASKS,
        "cluster.link.1.bandwith is no known key; did you mean bandwidth? (there are between, bandwidth, latency)",
    ),
    "misspelt key of a what-if": (
        STAR + ASKS + '[[what_if]]\ntitle = "x"\n[what_if.cluster]\nprest = "this-machine"\n',
        "what_if.0.cluster: prest is no known key; did you mean preset? (of ",
    ),
    "ambiguous bandwidth": (
        changed(STAR, "10 Gbit/s", "25 Gb/s") + ASKS,
        f"cluster.bandwidth: '25 Gb/s' is no bandwidth; {UNITS}",
    ),
    "ambiguous bandwidth of a link": (
        changed(LINKS, "1 Gbit/s", "1Gbps") + ASKS,
        f"cluster.link.1.bandwidth: '1Gbps' is no bandwidth; {UNITS}",
    ),
    "no bandwidth": (
        changed(STAR, "10 Gbit/s", "0 bit/s") + ASKS,
        "cluster.bandwidth: '0 bit/s' is no bandwidth: it must be above zero",
    ),
    "bare bandwidth": (
        changed(STAR, '"10 Gbit/s"', "10") + ASKS,
        "cluster.bandwidth: 10 is no bandwidth: a bare number has no unit",
    ),
    "bare latency": (
        changed(STAR, '"5 us"', "5") + ASKS,
        "cluster.latency: 5 is no time: a bare number has no unit; write a number and one of s, ms, us, ns",
    ),
    "link to nowhere": (
        changed(LINKS, '"s0", "h1"', '"s0", "x1"') + ASKS,
        "cluster.link: link s0 - x1: node 'x1' leads nowhere; name hosts h0, h1, ... and switches s0, s1, ...",
    ),
    "link with one end": (
        changed(LINKS, '"s0", "h1"', '"s0"') + ASKS,
        'cluster.link.1.between = ["s0"] should have at least 2 items',
    ),
    "link with three ends": (
        changed(LINKS, '"s0", "h1"', '"s0", "h1", "h2"') + ASKS,
        'cluster.link.1.between = ["s0", "h1", "h2"] should have at most 2 items',
    ),
    "link to itself": (
        changed(LINKS, '"s0", "h1"', '"s0", "s0"') + ASKS,
        "cluster.link: link s0 - s0: a link needs two different nodes",
    ),
    "link there twice": (
        changed(LINKS, '"s0", "h1"', '"s0", "h0"') + ASKS,
        "cluster.link: link s0 - h0 is there twice",
    ),
    "network in two pieces": (
        changed(LINKS, '"s0", "h1"', '"s1", "h1"') + ASKS,
        "cluster.link: the network is in 2 pieces: no link leads from h0, s0 to the rest",
    ),
    "network without a host": (
        changed(changed(LINKS, '"h0"', '"s1"'), '"h1"', '"s2"') + ASKS,
        "cluster.link: the cluster has no host; name hosts h0, h1, ...",
    ),
    "no links": ("[cluster]\nlink = []\n" + ASKS, "cluster.link = [] should have at least 1 item"),
    "links as a table": ("[cluster.link]\n" + ASKS, "cluster.link = {} should be a list"),
    "zero ranks": (STAR + "world_size = 0\n" + ASKS, "cluster.world_size = 0 should be greater than or equal to 1"),
    "zero ranks of this machine": (
        HERE + "world_size = 0\n" + ASKS,
        "cluster.world_size = 0 should be greater than or equal to 1",
    ),
    "zero hosts": (
        changed(STAR, "hosts = 4", "hosts = 0") + ASKS,
        "cluster.hosts = 0 should be greater than or equal to 1",
    ),
    "more hosts than can be": (
        changed(STAR, "hosts = 4", "hosts = 1000000") + ASKS,
        "cluster.hosts = 1000000 should be less than or equal to 65536",
    ),
    "more ranks than hosts": (
        STAR + "world_size = 5\n" + ASKS,
        "cluster.world_size: 5 ranks do not fit: the cluster has 4 hosts, and each holds one rank",
    ),
    "half a rank": (STAR + "world_size = 2.5\n" + ASKS, "cluster.world_size = 2.5 should be a whole number"),
    "true ranks": (STAR + "world_size = true\n" + ASKS, "cluster.world_size = true should be a whole number"),
    "both preset and topology": (
        STAR + 'preset = "this-machine"\n' + ASKS,
        f"cluster: preset and topology exclude each other; {FORMS}",
    ),
    "both topology and links": (
        changed(LINKS, "[cluster]", '[cluster]\ntopology = "star"') + ASKS,
        "cluster: topology and link exclude each other",
    ),
    "an empty cluster": ("[cluster]\n" + ASKS, f"cluster: nothing says what it is; {FORMS}"),
    "no cluster": (ASKS, 'cluster is missing; give for example [cluster] with preset = "this-machine"'),
    "cluster as a number": ("cluster = 3\n" + ASKS, "cluster = 3 should be a table"),
    "unknown preset": (
        changed(HERE, "this-machine", "zzz9") + ASKS,
        "cluster: preset 'zzz9' is not known; there are this-machine, ",
    ),
    "unknown topology": (
        changed(STAR, '"star"', '"moebius"') + ASKS,
        "cluster: topology 'moebius' is not known; there are star, ring, ",
    ),
    "a topology in a file of another kind": (
        '[cluster]\ntopology = "net.gml"\n' + ASKS,
        "dragonfly, or a file that ends in .graphml or .json",
    ),
    "topology as a number": ("[cluster]\ntopology = 3\n" + ASKS, "cluster: topology = 3 should be a text in quotes"),
    "misspelt topology": (
        changed(STAR, "topology", "toplogy") + ASKS,
        "cluster: toplogy is no known key; did you mean topology?",
    ),
    "hosts of nothing": ("[cluster]\nhosts = 3\n" + ASKS, f"cluster: nothing says what it is; {FORMS}"),
    "a key of machines": (
        STAR + "nodes_per_leaf = 2\n" + ASKS,
        'cluster: nodes_per_leaf does not go with topology = "star"; it is an argument of a preset of the hardware',
    ),
    "unknown transport": (
        STAR + 'transport = "tcp"\n' + ASKS,
        "cluster.transport = \"tcp\" should be 'ideal', 'gloo-tcp' or 'nccl'",
    ),
    "ideal transport here": (
        HERE + 'transport = "ideal"\n' + ASKS,
        'cluster: transport = "ideal": this machine is calibrated; leave it out or "gloo-tcp"',
    ),
    "star without latency": (
        changed(STAR, 'latency = "5 us"', "") + ASKS,
        'cluster: latency is missing; topology = "star" needs hosts, bandwidth and latency',
    ),
    "preset with bandwidth": (
        HERE + 'bandwidth = "1 Gbit/s"\n' + ASKS,
        'cluster: bandwidth does not go with preset = "this-machine"; it is an argument of topology = "star" or ',
    ),
    "empty file": ("", "cluster is missing"),
    "algorithm's file missing": (changed(ASKS, '"ring"', '"absent.py:x"') + STAR, "absent.py: no such file"),
    "what-if without cluster": (
        STAR + ASKS + '[[what_if]]\ntitle = "x"\n',
        "what_if.0: nothing differs from the scenario: give a [what_if.cluster], a [what_if.trouble] or both",
    ),
    "what-if as a table": (STAR + ASKS + '[what_if]\ntitle = "x"\n', 'what_if = {"title": "x"} should be a list'),
    "what-if in pieces": (
        STAR
        + ASKS
        + '[[what_if]]\ntitle = "x"\n'
        + changed(LINKS, '"s0", "h1"', '"s1", "h1"').replace("cluster", "what_if.cluster"),
        "what_if.0.cluster.link: the network is in 2 pieces",
    ),
    "empty title": ('title = ""\n' + STAR + ASKS, 'title = "" should not be empty'),
    "title as a number": ("title = 3\n" + STAR + ASKS, "title = 3 should be a text in quotes"),
    "not TOML": (
        STAR + "hosts 4\n" + ASKS,
        "not TOML: Expected '=' after a key in a key/value pair (at line 7, column 7)",
    ),
    "not TOML at its end": (
        STAR + ASKS + "[",
        "not TOML: Invalid initial character for a key part (at end of document) on line 12",
    ),
    "the same key twice": (STAR + "hosts = 4\n" + ASKS, "not TOML: Cannot overwrite a value (at line 7, column 10)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_it_is_refused(tmp_path: Path, case: str) -> None:
    check_refused(tmp_path, *WRONG[case])


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    reference = write(tmp_path, b'[cluster]\n# gr\xfc\xdfe\npreset = "this-machine"\n')
    with pytest.raises(InputError, match=r"asked.toml: line 2 is not UTF-8 text"):
        load(reference)


def test_a_missing_file_is_refused_with_the_shipped_scenarios() -> None:
    with pytest.raises(InputError) as refusal:
        load("quickstrat")
    assert str(refusal.value) == (
        "quickstrat: no such file; name a scenario file, or a shipped scenario; did you mean quickstart? "
        f"(of {len(shipped())})"
    )


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="is a directory; name a scenario file, or a shipped scenario; there are dgx-h100, quick"
    ):
        load(str(tmp_path))
