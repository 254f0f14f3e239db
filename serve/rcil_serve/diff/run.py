"""Runs two models on one source and writes a video, a page, numbers and a receipt."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rcil.core.documents import write_json
from rcil.core.errors import RcilError
from rcil.core.files import working_in
from rcil.core.log import Notify
from rcil_serve.diff.findings import Findings, findings_of, headline
from rcil_serve.diff.page import write_page
from rcil_serve.diff.panels import Panels, jpeg
from rcil_serve.diff.tally import Tally
from rcil_serve.diff.transitions import Pair
from rcil_serve.diff.views import MIN_WIDTH, DiffSink, fitting, open_view
from rcil_serve.runtime.backends import Backend
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Stages
from rcil_serve.stream.options import StreamOptions
from rcil_serve.stream.output_checks import check_no_overwrite
from rcil_serve.stream.outputs.encoders import Encoding, chosen
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.outputs.receipt import Receipt, Show, Status, describe_model, summarize_model
from rcil_serve.stream.pipeline import run_pipeline
from rcil_serve.stream.sources import Source

ENDINGS: dict[Status, str] = {
    "running": "",
    "done": "",
    "interrupted": "; interrupted by the user",
    "failed": "; the run failed",
}


@dataclass(frozen=True)
class DiffRequest(StreamOptions):
    """What `rcil-serve diff` is asked to do."""

    old: Path
    new: Path
    source: str
    out: Path
    """Folder for `diff.mp4`, `diff.html`, `diff.json` and `diff.receipt.json`."""
    view: str = "side"
    """One of `VIEWS`."""
    alpha: float = 0.5
    encoding: Encoding = field(default_factory=Encoding)

    @property
    def receipt(self) -> Path:
        """Path of the receipt."""
        return self.out / "diff.receipt.json"

    def outputs(self) -> dict[str, Path]:
        """Files to write, by name."""
        files = {"report": self.out / "diff.html", "numbers": self.out / "diff.json"}
        return files if self.view == "none" else {"video": self.out / "diff.mp4", **files}

    def check(self) -> None:
        """Raise if an output would overwrite an input. Nothing is opened."""
        check_no_overwrite(self.source, [self.old, self.new], {**self.outputs(), "receipt": self.receipt})

    def as_document(self) -> dict[str, Any]:
        """The options as JSON-ready values, for the receipt."""
        return super().as_document() | {"view": self.view, "alpha": self.alpha} | asdict(self.encoding)


@dataclass(frozen=True)
class DiffResult:
    """The result of a run."""

    document: dict[str, Any]
    """The receipt."""
    found: Findings
    warnings: list[str]

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        return headline(self.found)


def run_diff(
    request: DiffRequest, notify: Notify = lambda text: None, show: Show = lambda progress: None
) -> DiffResult:
    """Run two models on a source and write what changed.

    Once models and source are open, the receipt records how the run ended, even after an error.

    Args:
        request: The request.
        notify: Called with one line for each choice that is made.
        show: Called with the progress, ten times per second.
    """
    request.check()
    with contextlib.ExitStack() as stack:
        backends = []
        for path in (request.old, request.new):
            backends.append(stack.enter_context(contextlib.closing(request.open_backend(path))))
            notify(f"{path}: {summarize_model(backends[-1])}")
        old, new = backends
        warnings = warnings_about(old, new)
        for text in warnings:
            notify(f"warning: {text}")
        predictors = [Predictor(backend, request.layout) for backend in backends]
        for line in dict.fromkeys(line for predictor in predictors for line in predictor.notices):
            notify(line)
        pair = Pair(*predictors)
        source = stack.enter_context(contextlib.closing(request.open_source(request.source)))
        notify(f"{source.info.name}: {source.info.summary}")
        stack.enter_context(working_in(request.out))
        return _Run(request, (old, new), pair, source, warnings, show, notify).run()


class _Run:
    """One run, from the open source to the final receipt."""

    def __init__(
        self,
        request: DiffRequest,
        backends: tuple[Backend, Backend],
        pair: Pair,
        source: Source,
        warnings: list[str],
        show: Show,
        notify: Notify,
    ) -> None:
        self._request, self._backends, self._pair, self._source = request, backends, pair, source
        self._warnings, self._notify = warnings, notify
        self._stages = Stages()
        panels = Panels(pair.classes, pair.codes, request.alpha)
        small = fitting(source.info.size, 1, MIN_WIDTH)
        self._tally = Tally(pair.codes, lambda frame, codes: jpeg(panels.three(frame.pixels, codes, small)))
        self._sink = self._open_sink(panels)
        self._receipt = Receipt(
            request.receipt,
            backends[1],
            source,
            request.source,
            {"compared_with": describe_model(backends[0]), **request.as_document()},
            self._stages,
            request.outputs(),
            show=show,
        )

    def _open_sink(self, panels: Panels) -> DiffSink:
        request, info, movie = self._request, self._source.info, None
        view = open_view(request.view, info.size, panels, self._pair.classes, titles(*self._backends))
        if view is not None:
            info = replace(info, size=view.size)
            encoding = chosen(request.encoding, info, self._notify)
            movie = Movie(request.outputs()["video"], info, offset=request.selection.start, encoding=encoding)
        return DiffSink(self._tally, self._stages, view, movie)

    def run(self) -> DiffResult:
        """See `run_diff`."""
        try:
            self._receipt.write("running")
            finished = run_pipeline(self._source, self._pair, self._sink, self._stages, self._receipt.tick)
            self._receipt.check_frames()
            self._sink.finish()
            status: Status = "done" if finished else "interrupted"
            found = self._report(status)
        except BaseException as error:
            self._sink.abandon()
            with contextlib.suppress(RcilError):  # the disk may be full
                if self._tally.frames:
                    self._report("failed")
            raise self._receipt.failed(error) from error
        return DiffResult(self._receipt.write(status), found, self._warnings)

    def _report(self, status: Status) -> Findings:
        """Write the page and the numbers of everything that was compared so far."""
        found, outputs = findings_of(self._tally, self._pair.classes), self._request.outputs()
        old, new = (describe_model(backend) for backend in self._backends)
        write_json(
            outputs["numbers"],
            {
                "status": status,
                "old": old,
                "new": new,
                "source": self._source.info.name,
                "warnings": self._warnings,
                **found.as_document(),
            },
        )
        facts = facts_of(self._backends, self._source, found, status)
        write_page(outputs["report"], found, self._pair.classes.table, facts, self._warnings)
        return found


def warnings_about(old: Backend, new: Backend) -> list[str]:
    """Return reasons to doubt a comparison of these two models."""
    found = []
    if old.sha256 == new.sha256:
        found.append("both models are the same file, so nothing can differ")
    if new.metadata.step < old.metadata.step:
        found.append(
            f"the new model is step {new.metadata.step} and the old one step {old.metadata.step}; they may be swapped"
        )
    if new.metadata.rejected:
        found.append(f"the new model was rejected after training: {new.metadata.rejected}")
    return found


def titles(old: Backend, new: Backend) -> tuple[str, str]:
    """Captions of the models: their file names, with the folder if the names are equal."""
    paths = Path(old.name), Path(new.name)
    names = [path.name for path in paths]
    if names[0] == names[1]:
        names = [f"{path.parent.name}/{path.name}" for path in paths]
    return f"old: {names[0]} (step {old.metadata.step})", f"new: {names[1]} (step {new.metadata.step})"


def facts_of(backends: tuple[Backend, Backend], source: Source, found: Findings, status: Status) -> dict[str, str]:
    """Describe what was compared, for the top of the page."""
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
        "Source": f"{info.name}: {info.summary}",
        "Frames": f"{found.frames} compared{lost}{ENDINGS[status]}",
        "Classes": "; ".join([", ".join(shared), *(f"{where}: {', '.join(n)}" for where, n in only.items() if n)]),
    }
