"""What the three command lines share: error display, exit codes, global options, what goes to which stream."""

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
from typing import Any

import typer
from typer.core import TyperGroup

from rcil import __version__
from rcil.core.dry_run import DryRun
from rcil.core.errors import ConfigError, MissingDependencyError, RcilError
from rcil.core.log import is_quiet, listening

_ANYWHERE = ("-q", "--quiet", "-v", "--verbose", "--debug")
"""Options of the script that are understood behind its commands too."""
_PACKAGES = {
    **dict.fromkeys(("torch", "safetensors", "matplotlib", "tensorboard", "onnx"), "train"),
    "onnxruntime": "cpu",
    **dict.fromkeys(("av", "fastapi", "uvicorn", "prometheus_client", "multipart"), "serve"),
    **dict.fromkeys(("model_signing", "cryptography", "OpenSSL"), "sign"),
}


class Script(TyperGroup):
    """The top of a script: what holds for all of its commands may be said anywhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the script's own flags in front."""
        end = args.index("--") if "--" in args else len(args)
        own = [word for word in args[:end] if word in _ANYWHERE]
        rest = [word for word in args[:end] if word not in _ANYWHERE]
        return super().parse_args(ctx, [*own, *rest, *args[end:]])


class DefaultCommand(Script):
    """A script that runs its first command when none is named: `script FILE` is `script FIRST FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name in front of what is its own."""
        own = {option for parameter in self.get_params(ctx) for option in (*parameter.opts, *parameter.secondary_opts)}
        start = next((place for place, word in enumerate(args) if word not in own), len(args))
        if start < len(args) and args[start] not in self.commands:
            args = [*args[:start], next(iter(self.commands)), *args[start:]]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The first word: a command, or what the first command takes."""
        name, first = next(iter(self.commands.items()))
        with first.make_context(name, [], parent=ctx, resilient_parsing=True) as inside:
            taker = first if incomplete.startswith("-") else first.params[0]
            return [*super().shell_complete(ctx, incomplete), *taker.shell_complete(inside, incomplete)]


def make_app(name: str, help_text: str, group: type[Script] = Script) -> typer.Typer:
    """A Typer application with the options that all three scripts have."""
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
        quiet: bool = typer.Option(False, "-q", "--quiet", help="Results and errors only."),
        verbose: bool = typer.Option(False, "-v", "--verbose", help="Also what is read and written, and how long."),
        debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    ) -> None:
        del version
        if quiet and verbose:
            raise ConfigError("--quiet and --verbose exclude each other", "Leave one of them out.")
        context.with_resource(listening(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING))
        if debug:
            os.environ["RCIL_DEBUG"] = "1"

    return app


def run(app: Callable[[], Any]) -> None:
    """Run an application; an error the user can act on is printed with its remedy, and sets the exit code."""
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
def progress_line(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(disable=is_quiet() or not sys.stderr.isatty(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def make_notifier(*, as_json: bool) -> Callable[[str], None]:
    """Return a function that prints notices: to stdout, to stderr if stdout holds JSON, nowhere with --quiet."""
    return (lambda text: None) if is_quiet() else partial(typer.echo, err=as_json)


def print_json(document: object) -> None:
    """Machine-readable output on standard output."""
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
    """What the system says of a file, where nothing nearer to it had better words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None:
        return RcilError(f"cannot write all of the output: {error.strerror}", "Free some space, or send it elsewhere.")
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
