"""Shared by the three command lines: error display, exit codes, global options and output streams."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rcil import __version__
from rcil.core.allowed_imports import allow_imports
from rcil.core.errors import ConfigError, MissingDependencyError, RcilError
from rcil.core.log import DryRun, Notify, Progress, is_quiet, listening

_ANYWHERE = ("-q", "--quiet", "-v", "--verbose", "--debug")
"""Global options, which are also accepted after a command."""
_ALLOW = "--allow-import"
"""A global option with a value."""
_PACKAGES = {
    **dict.fromkeys(("torch", "safetensors", "matplotlib", "tensorboard", "onnx"), "train"),
    "onnxruntime": "cpu",
    **dict.fromkeys(("av", "fastapi", "uvicorn", "prometheus_client", "multipart"), "serve"),
    **dict.fromkeys(("model_signing", "cryptography", "OpenSSL"), "sign"),
}


def split_global(args: list[str]) -> tuple[list[str], list[str]]:
    """The global options on a command line, with their values, and all other words."""
    end = args.index("--") if "--" in args else len(args)
    own: list[str] = []
    rest: list[str] = []
    words = iter(args[:end])
    for word in words:
        if word == _ALLOW:
            own += [word, *([value] if (value := next(words, None)) is not None else [])]
        else:
            (own if word in _ANYWHERE or word.startswith(f"{_ALLOW}=") else rest).append(word)
    return own, [*rest, *args[end:]]


class Script(TyperGroup):
    """The command group of a script; its global options may appear anywhere on the command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global options to the front."""
        own, rest = split_global(args)
        return super().parse_args(ctx, [*own, *rest])


class DefaultCommand(Script):
    """A script whose first command is the default: `script FILE` means `script FIRST FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the name of the default command if no command is given."""
        first, args = split_global(args)
        own = {option for parameter in self.get_params(ctx) for option in (*parameter.opts, *parameter.secondary_opts)}
        start = next((index for index, word in enumerate(args) if word not in own), len(args))
        if start < len(args) and args[start] not in self.commands:
            args = [*args[:start], next(iter(self.commands)), *args[start:]]
        return super().parse_args(ctx, [*first, *args])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete the first word: a command, or an argument of the default command."""
        name, first = next(iter(self.commands.items()))
        with first.make_context(name, [], parent=ctx, resilient_parsing=True) as inside:
            taker = first if incomplete.startswith("-") else first.params[0]
            return [*super().shell_complete(ctx, incomplete), *taker.shell_complete(inside, incomplete)]


def make_app(name: str, help_text: str, group: type[Script] = Script) -> typer.Typer:
    """Create a Typer application with the global options of all three scripts."""
    app = typer.Typer(
        name=name,
        cls=group,
        help=help_text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(value: bool) -> None:
        if value:
            typer.echo(f"{name} {__version__}")
            raise typer.Exit

    @app.callback()
    def options(
        context: typer.Context,
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Print the version."
        ),
        quiet: bool = typer.Option(False, "-q", "--quiet", help="Print results and errors only."),
        verbose: bool = typer.Option(
            False, "-v", "--verbose", help="Also print which files are read and written, and how long each stage takes."
        ),
        debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
        allowed: Annotated[
            list[str] | None,
            typer.Option(
                _ALLOW,
                metavar="PACKAGE",
                help="Allow this package to build the network of a checkpoint or task. Can be repeated.",
            ),
        ] = None,
    ) -> None:
        if allowed:
            allow_imports(allowed)
        if quiet and verbose:
            raise ConfigError("--quiet and --verbose exclude each other", "Use only one of them.")
        context.with_resource(listening(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING))
        if debug:
            os.environ["RCIL_DEBUG"] = "1"

    return app


def run(app: Callable[[], Any]) -> None:
    """Run an application. Errors that a user can act on are printed with a hint and set the exit code."""
    try:
        app()
    except (RcilError, ModuleNotFoundError, OSError) as error:
        if os.environ.get("RCIL_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError):
            error = _missing(error)
        elif isinstance(error, OSError):
            error = _refused(error)
        text = f"error: {error.message}"
        typer.echo(text if os.environ.get("NO_COLOR") else typer.style(text, fg=typer.colors.RED), err=True)
        if error.hint:
            typer.echo(error.hint, err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)


@contextlib.contextmanager
def progress_line(title: str) -> Iterator[Progress]:
    """Show a progress bar on a terminal, and elsewhere a line every half minute."""
    with stage_lines(title, lambda text: None) as (_, show):
        yield show


@contextlib.contextmanager
def stage_lines(title: str, notify: Notify) -> Iterator[tuple[Notify, Progress]]:
    """Like `progress_line`, for work that announces its stages.

    Args:
        title: What is done before the first stage.
        notify: Prints a line.

    Yields:
        A function that prints the name of a stage, which becomes the title, and one that takes the progress.
    """
    from rich.console import Console
    from rich.progress import Progress as ProgressBar

    from rcil.cli.heartbeat import heartbeat

    terminal = sys.stderr.isatty()
    with (
        ProgressBar(disable=is_quiet() or not terminal, console=Console(stderr=True), transient=True) as bar,
        heartbeat(title, terminal=terminal) as beat,
    ):
        task = bar.add_task(title, total=None)
        titles = [title]

        def begin(text: str) -> None:
            notify(text)
            titles[:] = [text]
            bar.update(task, description=text, completed=0, total=None)
            beat.status = text
            beat.restart()

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            beat.count(titles[0], done, total)

        yield begin, show


def make_notifier(*, as_json: bool) -> Notify:
    """Return a function that prints notices: to stdout, to stderr if stdout holds JSON, nowhere with --quiet."""
    return (lambda text: None) if is_quiet() else partial(typer.echo, err=as_json)


def print_json(document: object) -> None:
    """Print a JSON document to standard output."""
    typer.echo(json.dumps(document, indent=2))


def print_dry_run(plan: DryRun, *, as_json: bool) -> None:
    """Print what a run would read, write and need."""
    if as_json:
        print_json({"dry_run": True, **asdict(plan)})
        return
    for title, part in (("would read", plan.reads), ("would write", plan.writes), ("needs about", plan.needs)):
        for name, text in part.items():
            typer.echo(f"{title:12} {name}: {text}" if text else f"{title:12} {name}")


def _refused(error: OSError) -> RcilError:
    """Convert an error of the operating system that no other code has explained."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None:
        return RcilError(
            f"cannot write all of the output: {error.strerror}", "Free some space, or write to another disk."
        )
    if error.filename is None:
        raise error
    return RcilError(f"{error.filename}: {error.strerror}", "Check the path, its permissions and the free space.")


def _missing(error: ModuleNotFoundError) -> RcilError:
    name = (error.name or "").partition(".")[0]
    if name not in _PACKAGES:
        raise error
    return MissingDependencyError(
        f"this command needs the package {name}, which is not installed",
        f"Install it with: pip install 'rcil[{_PACKAGES[name]}]'",
    )
