"""What the three command lines share: error display, exit codes, version."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from rcil import __version__
from rcil.errors import MissingDependencyError, RcilError
from rcil.files import replacing

_PACKAGES = {
    **dict.fromkeys(("torch", "safetensors", "matplotlib", "tensorboard", "onnx", "onnxruntime"), "cpu"),
    **dict.fromkeys(("av", "fastapi", "uvicorn", "prometheus_client", "multipart"), "serve"),
}


class DefaultCommand(TyperGroup):
    """A group that runs its first command when none is named: `script FILE` is `script FIRST FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name in front of what is its own."""
        own = {option for parameter in self.get_params(ctx) for option in (*parameter.opts, *parameter.secondary_opts)}
        start = next((place for place, word in enumerate(args) if word not in own), len(args))
        if start < len(args) and args[start] not in self.commands:
            args = [*args[:start], next(iter(self.commands)), *args[start:]]
        return super().parse_args(ctx, args)


def make_app(name: str, help_text: str, group: type[TyperGroup] = TyperGroup) -> typer.Typer:
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
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Print the version."
        ),
        debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    ) -> None:
        del version
        if debug:
            os.environ["RCIL_DEBUG"] = "1"

    return app


def run(app: Callable[[], Any]) -> None:
    """Run an application; an error the user can act on is printed with its remedy, and sets the exit code."""
    try:
        app()
    except (RcilError, ModuleNotFoundError) as error:
        if os.environ.get("RCIL_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError):
            error = _missing(error)
        typer.secho(f"error: {error.message}", err=True, fg=typer.colors.RED)
        if error.hint:
            typer.secho(error.hint, err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.secho("interrupted", err=True)
        sys.exit(130)


@contextlib.contextmanager
def progress_line(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(disable=not sys.stderr.isatty(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def write_json(path: Path, document: object) -> None:
    """A JSON file, whole or not at all."""
    with replacing(path) as part:
        part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def print_json(document: object) -> None:
    """Machine-readable output on standard output."""
    typer.echo(json.dumps(document, indent=2))


def _missing(error: ModuleNotFoundError) -> RcilError:
    name = (error.name or "").partition(".")[0]
    if name not in _PACKAGES:
        raise error
    return MissingDependencyError(
        f"this command needs the package {name}, which is not installed",
        f"Install it with: pip install 'rcil[{_PACKAGES[name]}]'",
    )
