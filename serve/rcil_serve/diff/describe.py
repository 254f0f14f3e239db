"""Two models and a source in words."""

from __future__ import annotations

from pathlib import Path

from rcil_serve.diff.findings import Findings
from rcil_serve.runtime.backends import Backend
from rcil_serve.stream.outputs.receipt import Status
from rcil_serve.stream.sources import Source

ENDINGS: dict[Status, str] = {
    "running": "",
    "done": "",
    "interrupted": "; ended by the user",
    "failed": "; the run broke off",
}


def warnings_about(old: Backend, new: Backend) -> list[str]:
    """What makes a comparison of these two doubtful."""
    found = []
    if old.sha256 == new.sha256:
        found.append("both models are the same file, so nothing can differ")
    if new.metadata.step < old.metadata.step:
        found.append(
            f"the new model is of step {new.metadata.step}, the old one of step {old.metadata.step}: they may be the "
            "wrong way round"
        )
    if new.metadata.rejected:
        found.append(f"the new model was found unfit to be deployed: {new.metadata.rejected}")
    return found


def titles(old: Backend, new: Backend) -> tuple[str, str]:
    """What captions call the models: file names, with their folders where these alone tell them apart."""
    paths = Path(old.name), Path(new.name)
    names = [path.name for path in paths]
    if names[0] == names[1]:
        names = [f"{path.parent.name}/{path.name}" for path in paths]
    return f"old: {names[0]} (step {old.metadata.step})", f"new: {names[1]} (step {new.metadata.step})"


def facts_of(backends: tuple[Backend, Backend], source: Source, found: Findings, status: Status) -> dict[str, str]:
    """What was compared, for the head of the page."""
    info, counts = source.info, source.counts
    old, new = (
        f"{backend.name}: step {backend.metadata.step}, {len(backend.metadata.classes)} classes" for backend in backends
    )
    lost = "".join(f", {getattr(counts, name)} {name}" for name in ("dropped", "corrupt") if getattr(counts, name))
    only = {"only in the new model": found.added, "only in the old model": found.removed}
    shared = [name for name in found.names if name not in found.added + found.removed]
    return {
        "Old model": old,
        "New model": new,
        "Source": f"{info.name}: {info.size[1]}x{info.size[0]}, {float(info.rate):.3f} frames a second",
        "Frames": f"{found.frames} compared{lost}{ENDINGS[status]}",
        "Classes": "; ".join([", ".join(shared), *(f"{where}: {', '.join(n)}" for where, n in only.items() if n)]),
    }
