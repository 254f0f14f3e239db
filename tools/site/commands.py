"""One page for each script with all its commands and their options, read from the Typer applications."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

import rcil.cli.app
import rcil_export.cli.app
import rcil_serve.cli.app

SCRIPTS = {"rcil": rcil.cli.app.app, "rcil-export": rcil_export.cli.app.app, "rcil-serve": rcil_serve.cli.app.app}
EXAMPLES = re.compile(r"^Examples?:\s*", re.M)
UNSET = (None, False, ())


def commands_page(script: str) -> str:
    """Every visible command of a script as Markdown: help, example, arguments and options with their defaults."""
    top = get_command(SCRIPTS[script])
    parts = [f"# {script}", _prose(top.help), "Options that all its commands share:", *_table(top)]
    for name, command in leaves(top, script):
        parts += [f"## {name}", *_help(command), *_table(command)]
    return "\n\n".join(parts) + "\n"


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The commands below one with their full names; a group that does something by itself counts."""
    for word, inner in command.commands.items():
        name = f"{path} {word}"
        if inner.hidden:
            continue
        below = getattr(inner, "commands", None)
        if below is None or inner.invoke_without_command:
            yield name, inner
        if below is not None:
            yield from leaves(inner, name)


def _help(command: Any) -> list[str]:
    """The help text, with its examples as a shell block."""
    text, *examples = EXAMPLES.split(inspect.cleandoc(command.help or ""), maxsplit=1)
    lines = [line.strip() for line in "".join(examples).splitlines()]
    return [_prose(text), *(["```\n" + "\n".join(line for line in lines if line) + "\n```"] if examples else [])]


def _prose(text: str | None) -> str:
    """A text with options marked as code, so that two hyphens stay two hyphens."""
    pieces = re.split(r"(`[^`]+`)", inspect.cleandoc(text or ""))
    return "".join(
        piece if piece.startswith("`") else re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", piece) for piece in pieces
    ).replace("\n    ", "\n")


def _table(command: Any) -> list[str]:
    """Arguments and options as one table; nothing for a command without any."""
    context = typer.Context(command)
    rows = [_row(parameter, context) for parameter in command.params if not getattr(parameter, "hidden", False)]
    if not rows:
        return []
    return ["\n".join(["| argument or option | value | meaning |", "|---|---|---|", *rows])]


def _row(parameter: Any, context: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.name.upper()}`"
    else:
        name = ", ".join(f"`{word}`" for word in (*parameter.opts, *parameter.secondary_opts))
    flag = getattr(parameter, "is_bool_flag", False)
    meaning = _prose(" ".join((parameter.help or "").split()))
    if parameter.required:
        meaning += " **Required.**"
    elif not flag and parameter.default not in UNSET and not callable(parameter.default):
        meaning += f" Default: `{_written(parameter.default)}`."
    return f"| {name} | {'' if flag else _value(parameter, context)} | {meaning.replace('|', chr(92) + '|')} |"


def _value(parameter: Any, context: Any) -> str:
    """The type, with the range of a number."""
    kind = parameter.display_type(context).strip("<>").removesuffix(" range")
    kind = {"str": "text", "int": "integer", "float": "number", "list[str]": "text, repeatable"}.get(kind, kind)
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if low is not None and high is not None:
        kind += f", {low:g} to {high:g}"
    elif low is not None:
        kind += f", at least {low:g}"
    elif high is not None:
        kind += f", at most {high:g}"
    return str(kind).replace("|", " \\| ")


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
