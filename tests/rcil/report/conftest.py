from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from networks import small_arch
from sites import make_site

from rcil.checkpoint.file import save
from rcil.evaluation.evaluate import ClassResult, EvalReport
from rcil.model.metadata import Metadata, class_table
from rcil.nn import begin_step, build
from rcil.report.models import Evaluated

VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Tags with their attributes, rows of tables, and the text; fails on tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def references(self) -> list[str]:
        """Everything that a browser might fetch."""
        names = ("src", "href", "srcset", "action", "data", "poster")
        return [attrs[name] or "" for _, attrs in self.tags for name in names if name in attrs]


@pytest.fixture
def parse():
    """HTML text -> its tags, rows and text."""
    return Page


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A site with two images to evaluate on."""
    return make_site(tmp_path_factory.mktemp("data") / "site", splits=("val",), images=2)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Steps 0 and 1 of a tiny network."""
    folder, names = tmp_path_factory.mktemp("run"), [["background", "ball"], ["cone"]]
    first = build(small_arch(), names[:1])
    models = [first, begin_step(first, names[1], rows="balanced")]
    paths = [folder / f"step{step}.safetensors" for step in range(2)]
    for step, (path, model) in enumerate(zip(paths, models, strict=True)):
        save(path, model, Metadata(architecture=model.arch, classes=class_table(names[: step + 1]), step=step))
    return paths


@pytest.fixture
def evaluated():
    """Makes an evaluated model of which every class has the given IoU, from (step, [(name, step, iou)])."""

    def make(step, classes, path=None, unknown=()):
        names_by_step = [[name for name, s, _ in classes if s == index] for index in range(step + 1)]
        metadata = Metadata(architecture=small_arch(), classes=class_table(names_by_step), step=step, method="rcil")
        values = [iou for _, _, iou in classes]
        latest = max(s for _, s, _ in classes)
        old = [iou for _, s, iou in classes if s < latest]
        report = EvalReport(
            images=4,
            classes=tuple(ClassResult(name, s, iou, 100 * (row + 1)) for row, (name, s, iou) in enumerate(classes)),
            old=float(np.mean(old)) if old else float("nan"),
            new=float(np.mean([iou for _, s, iou in classes if s == latest])),
            all=float(np.mean(values)),
            pixel_accuracy=0.75,
            unknown=unknown,
            confusion=np.eye(len(classes), dtype=np.int64) * 5,
        )
        return Evaluated(Path(path or f"run/step{step}.safetensors"), metadata, report)

    return make
