import json

import numpy as np
import pytest

from rcil_serve.diff.findings import findings_of, headline, percent
from rcil_serve.diff.tally import Tally
from rcil_serve.stream.frames import Frame

MOVES = [  # old class, new class, pixels of 1000
    ("background", "background", 700),
    ("ball", "ball", 150),
    ("background", "road", 90),
    ("background", "sign", 10),
    ("ball", "background", 25),
    ("ball", "cone", 5),
    ("drum", "sign", 20),
]


@pytest.fixture
def found(yard):
    old, new = ([c.name for c in table] for table in (yard.old, yard.new))
    was = np.concatenate([np.full(count, old.index(a)) for a, _, count in MOVES]).reshape(25, 40).astype(np.uint8)
    now = np.concatenate([np.full(count, new.index(b)) for _, b, count in MOVES]).reshape(25, 40).astype(np.uint8)
    tally = Tally(yard.codes, lambda frame, codes: b"\xff\xd8")
    tally.add(Frame(7, 7, 3.5, np.zeros((25, 40, 3), np.uint8), 0.0, "shots/07.png"), yard.codes.of(was, now))
    return findings_of(tally, yard.classes)


def test_the_headline_names_kinds_and_classes(found):
    assert headline(found) == (
        "15.0 % of all pixels changed: 10.0 % learned (road, sign), 2.5 % suspected forgotten (ball), "
        "2.0 % lost (drum), 0.5 % swapped (ball → cone)."
    )


def test_nothing_changed(yard):
    tally = Tally(yard.codes, lambda frame, codes: b"")
    tally.add(Frame(0, 0, 0.0, np.zeros((4, 4, 3), np.uint8), 0.0), np.zeros((4, 4), np.uint8))
    found = findings_of(tally, yard.classes)
    assert headline(found) == "No pixel changed."
    assert not found.transitions and not found.worst


def test_the_document_holds_every_number(found):
    document = json.loads(json.dumps(found.as_document()))
    names = document["classes"]["names"]
    for old, new, count in MOVES:
        assert document["matrix"][names.index(old)][names.index(new)] == count
    assert document["pixels"] == np.sum(document["matrix"]) == 1000
    assert document["classes"]["added"] == ["road", "sign"] and document["classes"]["removed"] == ["drum"]
    assert document["kinds"]["learned"]["pixels"] == 100 and document["kinds"]["same"]["share"] == 0.85
    first = document["transitions"][0]
    assert first == {"old": "background", "new": "road", "kind": "learned", "pixels": 90} | {
        "share": 0.09,
        "share_of_old": 90 / 800,
    }
    assert [one["pixels"] for one in document["transitions"]] == [90, 25, 20, 10, 5]
    (second,) = document["worst_seconds"]
    assert second["second"] == 3 and second["shares"]["forgotten"] == pytest.approx(0.025)
    assert second["worst_frame"]["frame"] == 7 and second["worst_frame"]["file"] == "shots/07.png"
    assert document["timeline"]["times"] == [3] and document["timeline"]["shares"]["learned"] == [pytest.approx(0.1)]


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.0 %"), (1e-6, "under 0.01 %"), (0.0004, "0.04 %"), (0.0126, "1.3 %"), (1, "100.0 %")]
)
def test_small_shares_are_told_from_nothing(share, text):
    assert percent(share) == text
