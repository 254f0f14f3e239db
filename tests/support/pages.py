"""The Markdown pages of the project, taken apart: links, code blocks, commands, paths."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer.main

import rcil.cli.app
import rcil_export.cli.app
import rcil_serve.cli.app
from rcil.cli.console import DefaultCommand, split_global

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
SCRIPTS = {"rcil": rcil.cli.app, "rcil-export": rcil_export.cli.app, "rcil-serve": rcil_serve.cli.app}
LAUNCHERS = {"torchrun": "rcil", "python": "rcil"}
SHELL = ("", "bash", "sh", "console")
PATHS = re.compile(r"(?:rcil|export|serve|tests|tools|docs)/[\w./*-]*|[\w/-]+\.py")


class Block(NamedTuple):
    """A fenced code block."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks."""
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


def spans(page: Path) -> list[str]:
    """Code inside of sentences, on one line each."""
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose(page))]


def links(page: Path) -> list[str]:
    """Targets of links and pictures outside of code."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "code", prose(page)))


@cache
def anchors(page: Path) -> frozenset[str]:
    """What GitHub makes of the headings; repeated ones are numbered."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.+)$", prose(page), re.M):
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        repeated = sum(name == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", name) is not None for name in found)
        found.append(f"{slug}-{repeated}" if repeated else slug)
    return frozenset(found)


def commands(page: Path) -> list[list[str]]:
    """Calls of the three scripts in shell blocks, also through torchrun, as words."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(page)
        if block.language in SHELL
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    called = (words_of(line) for line in lines if re.match(r"(rcil|torchrun|python\S* -m rcil)", line))
    return [words for words in called if words]


def words_of(line: str) -> list[str]:
    """A command's words, launchers replaced by the script that they run; nothing for other programs."""
    words = shlex.split(line, comments=True)
    if words and words[0] in LAUNCHERS and "rcil" in words:
        words = words[words.index("rcil") :]
    return words if words and words[0] in SCRIPTS else []


@cache
def script(name: str) -> Any:
    """The Click group of a script."""
    return typer.main.get_command(SCRIPTS[name].app)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The Click command that words call, and what is left for it."""
    command: Any = script(words[0])
    given = split_global(words[1:])[1]
    rest = [word for word in given if word not in options_of(command)]  # flags of the script may stand anywhere
    while hasattr(command, "commands"):
        if rest and rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        elif isinstance(command, DefaultCommand) and rest:
            command = next(iter(command.commands.values()))
        else:
            assert not rest, f"there is no command '{' '.join(words)}'"
            break
    return command, rest


def options_of(command: Any) -> set[str]:
    """All spellings of a command's options."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in own if name.startswith("-")} | {"-h", "--help"}


@cache
def visible_options() -> frozenset[str]:
    """Options of all commands that their help shows."""
    left: list[Any] = [script(name) for name in SCRIPTS]
    found = {"--help"}
    while left:
        command = left.pop()
        left += getattr(command, "commands", {}).values()
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        found |= {name for parameter in shown for name in (*parameter.opts, *parameter.secondary_opts)}
    return frozenset(found)


def parse(words: list[str]) -> None:
    """Parse a whole command as Click does, without running it: options, numbers of arguments, types."""
    command, rest = command_of(words)
    if not hasattr(command, "commands"):  # a script with flags of its own alone has nothing more to parse
        command.make_context(words[0], rest)


def check_options(words: list[str]) -> None:
    """That a mentioned command, which need not be whole, exists with its options."""
    command, rest = command_of(words)
    for word in rest:
        if word.startswith("-") and not re.fullmatch(r"-?[\d.]+", word):
            assert word.partition("=")[0] in options_of(command), f"{' '.join(words)}: no option {word}"


def paths(page: Path) -> list[str]:
    """Files and folders of the project that code, in sentences and in shell blocks, names."""
    code = [*spans(page), *(block.text for block in blocks(page) if block.language in SHELL)]
    return [word for text in code for word in text.split() if PATHS.fullmatch(word)]


def exists(path: str) -> bool:
    """Whether there is such a file or folder; a bare file name may be anywhere in the sources."""
    if (ROOT / path).exists() or any(ROOT.glob(path)):
        return True
    folders = ("rcil", "export", "serve", "tests", "tools")
    return any(True for folder in folders for _ in (ROOT / folder).rglob(path))
