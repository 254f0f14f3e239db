"""What the processes of a run do that are not the first when a check fails: leave the telling to the first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from rcil.errors import RcilError
from rcil.train.processes import Processes


@contextlib.contextmanager
def told_once(processes: Processes) -> Iterator[None]:
    """For checks that all processes make: a mistake that all of them find is told by the first one alone.

    A process that ended before the first would make `torchrun` stop the first in the middle of its message, so others
    wait for it. If it is still there then, it found nothing, and the mistake is this process's own to tell. A first
    process that goes while others wait breaks their connection: it has told why.
    """
    try:
        yield
    except RcilError as error:
        if not processes.leads:
            with _gone_with_the_first(error.exit_code):
                processes.wait()
        raise
    except RuntimeError as error:
        if not processes.leads and _is_lost_connection(error):
            os._exit(RcilError.exit_code)
        raise


@contextlib.contextmanager
def _gone_with_the_first(exit_code: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError:
        os._exit(exit_code)


def _is_lost_connection(error: RuntimeError) -> bool:
    """What gloo says when another process ends; NCCL waits until `torchrun` ends this one."""
    return any(word in str(error) for word in ("onnection", "peer"))
