"""Commands that stop cleanly on Ctrl-C or SIGTERM and print the command that continues them."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import typer

from rcil.core.interrupts import Interrupted, interruptible

P = ParamSpec("P")
R = TypeVar("R")


def resumable(flag: str | None = "--resume") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a command whose interrupted runs can be continued.

    The training loop has saved its state when `Interrupted` arrives here. The exit code is 130 or 143.

    Args:
        flag: The option that continues a run; None if the same command does.
    """

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(command)
        def wrapped(*args: P.args, **options: P.kwargs) -> R:
            if options.get("dry_run"):
                return command(*args, **options)
            try:
                with interruptible():
                    return command(*args, **options)
            except Interrupted as stop:
                _end(stop.exit_code, resume_command(sys.orig_argv, sys.argv, os.environ, flag))

        return wrapped

    return decorate


def _end(exit_code: int, command: str) -> NoReturn:
    """Print the command in the first process, and exit.

    One of several processes exits without its usual end, which would wait for the others; see `leave`.
    """
    if os.environ.get("RANK", "0") == "0":
        typer.echo(f"interrupted; to continue:\n  {command}", err=True)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


def resume_command(original: Sequence[str], argv: Sequence[str], env: Mapping[str, str], flag: str | None) -> str:
    """The command line that continues this run, quoted for a shell.

    Args:
        original: The words that started the interpreter, `sys.orig_argv`.
        argv: The words of the script, `sys.argv`.
        env: The environment, in which `torchrun` says how many processes it started.
        flag: The option to add unless it is there; None adds nothing.
    """
    words = list(argv[1:])
    if flag is not None and flag not in words:
        end = words.index("--") if "--" in words else len(words)
        words.insert(end, flag)
    return shlex.join([*_launcher(original, argv, env), *words])


def _launcher(original: Sequence[str], argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The words before the arguments of the script: `rcil`, `python -m rcil` or `torchrun ... -m rcil`."""
    if "TORCHELASTIC_RUN_ID" in env:
        nodes = int(env.get("GROUP_WORLD_SIZE", "1"))
        several = ["--nnodes", str(nodes), "--node-rank", env.get("GROUP_RANK", "0")] if nodes > 1 else []
        master = ["--master-addr", env["MASTER_ADDR"], "--master-port", env["MASTER_PORT"]] if several else []
        return ["torchrun", *several, *master, "--nproc-per-node", env.get("LOCAL_WORLD_SIZE", "1"), "-m", "rcil"]
    if "-m" in original[: len(original) - len(argv[1:])]:
        return list(original[: len(original) - len(argv[1:])])
    script = Path(argv[0])
    found = shutil.which(script.name)
    return [script.name if found is not None and Path(found).resolve() == script.resolve() else str(script)]
