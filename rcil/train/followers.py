"""What the processes of a run do that are not the first when something is wrong: leave the telling to the first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from rcil.errors import RcilError
from rcil.train.processes import Processes


@contextlib.contextmanager
def stays_behind(processes: Processes) -> Iterator[None]:
    """End this process without a word if the block fails for a reason that the first process tells the user.

    All processes find the same mistakes in a request. One that ended before the first would make `torchrun` stop the
    first in the middle of its message, so this one waits until the first is gone. Where only the first fails, its going
    breaks the connection: that too is not worth a traceback of its own.
    """
    try:
        yield
    except RcilError as error:
        with contextlib.suppress(RuntimeError):
            processes.wait()
        os._exit(error.exit_code)
    except RuntimeError as error:
        if "onnection" not in str(error) and "peer" not in str(error):
            raise
        os._exit(RcilError.exit_code)
