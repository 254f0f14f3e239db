"""Whatever is wrong with a file, every command says so in words that name it."""

import re

import numpy as np
import pytest
from commands import COMMANDS, call

BAD = {
    "missing": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "empty": lambda path: path.write_bytes(b""),
    "random": lambda path: path.write_bytes(np.random.default_rng(0).bytes(4096)),
}
INPUTS = [
    (name, place) for name, text in COMMANDS.items() for place, word in enumerate(text.split()) if word.startswith("@")
]


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize(("name", "place"), INPUTS)
def test_a_bad_file_is_named(name, place, kind, linked):
    words = COMMANDS[name].split()
    bad = linked / f"bad{''.join(re.findall(r'[.].*', words[place]))}"
    BAD[kind](bad)
    words[place] = bad.name
    done = call(name, *(word.lstrip("@%") for word in words))
    assert done.code not in (0, 130), done.out
    assert bad.name in done.err or bad.name in done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize("name", [name for name, text in COMMANDS.items() if "%" in text])
def test_a_place_that_cannot_be_written_is_named(name, linked):
    (linked / "in_the_way").write_text("")
    for place, word in enumerate(COMMANDS[name].split()):
        if not word.startswith("%"):
            continue
        words = [other.lstrip("@%") for other in COMMANDS[name].split()]
        words[place] = f"in_the_way/{words[place]}"
        done = call(name, *words)
        assert done.code not in (0, 130), done.out
        assert "in_the_way" in done.err
        assert "Traceback" not in done.err
