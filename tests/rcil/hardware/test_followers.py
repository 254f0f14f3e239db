import os

import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.hardware.processes import Processes, report_once

LOST = RuntimeError("[../third_party/gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]:1")


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def process(monkeypatch):
    """Makes a process whose waiting ends as told."""

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)

    def make(rank, waiting=None):
        def wait(self):
            if waiting is not None:
                raise waiting

        monkeypatch.setattr(Processes, "wait", wait)
        return Processes(rank, 2, torch.device("cpu"))

    return make


def test_the_first_process_tells(process):
    with pytest.raises(ConfigError, match="wrong"), report_once(process(0, LOST)):
        raise ConfigError("wrong")


def test_others_end_in_silence_once_the_first_is_gone(process):
    with pytest.raises(Ended, match="2"), report_once(process(1, LOST)):
        raise ConfigError("wrong")


def test_what_only_another_process_finds_is_told_by_it(process):
    with pytest.raises(ConfigError, match="wrong here"), report_once(process(1)):
        raise ConfigError("wrong here")


def test_a_first_process_that_goes_takes_the_others_along(process):
    with pytest.raises(Ended, match="1"), report_once(process(1)):
        raise LOST
    with pytest.raises(RuntimeError, match="out of memory"), report_once(process(1)):
        raise RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="Connection"), report_once(process(0)):
        raise LOST
