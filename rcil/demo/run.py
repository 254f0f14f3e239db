"""Run the demo: a deployed model learns one more class from the images of a new site, and is exported and compared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from rcil import defaults
from rcil.core.documents import parse_yaml, write_json
from rcil.core.errors import ConfigError
from rcil.core.files import copy_file, working_in, write_file
from rcil.core.images import write_image
from rcil.core.log import Notify
from rcil.data.site import read_site
from rcil.demo.picture import draw_grid, pick_scenes
from rcil.demo.programs import export, screenshot_page, show_clip
from rcil.inference import load
from rcil.model.header import read_header
from rcil.report.plots import class_bars
from rcil.scenes import make_site
from rcil.scenes.site import made_with
from rcil.site.request import RECORD, step_request
from rcil.site.run import Display, add_class
from rcil.site.schedule import BudgetError
from rcil.training.loop import Listener

BASE = Path(__file__).with_name("base.safetensors")
"""The deployed model, which `make demo-model` trains."""
NEW = "vehicle"
SEED = 25
"""Number of the new site; the deployed model was trained on another one."""
FULL: dict[str, Any] = {"images": 240, "size": (288, 384), "frames": 60, "minutes": 3.0, "training": {}}
QUICK: dict[str, Any] = {
    "images": 40,
    "size": (64, 96),
    "frames": 2,
    "minutes": None,
    "training": {"epochs": 1, "batch": 2, "workers": 0},
}
MAX_MINUTES = 6.0
"""With more, the default budget is as good, and it is never too short."""
BEFORE, AFTER = "deployed model", "after add-class"
DOMAINS = ("sunny", "rain", "night")
"""The domains of the picture; the site has all of them."""
QUALITY = 88
"""JPEG quality of the picture."""
Watch = Callable[[], AbstractContextManager[Listener]]


def run(output: Path, *, quick: bool, say: Notify, watch: Watch, device: str = "auto") -> dict[str, Any]:
    """Run the demo; returns the content of `report.json`. A repeated call continues where the last one stopped.

    Args:
        output: Folder for the site, the models, pictures and the report.
        quick: Run only a few iterations on tiny images, to test the installation.
        say: Receives one line per stage.
        watch: Shows the progress of the training.
        device: Training device: `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    if not BASE.exists():
        raise ConfigError(f"{BASE} is missing", "Install the package again, or train the model with: make demo-model")
    with working_in(output):
        return _run(output, QUICK if quick else FULL, say, watch, device)


def _run(output: Path, how: dict[str, Any], say: Notify, watch: Watch, device: str) -> dict[str, Any]:
    stages: dict[str, dict[str, float]] = {}
    site, deployed, taught = output / "site", output / "deployed.safetensors", output / NEW
    with _timed("site", stages):
        _make_site(output, site, how)
        copy_file(BASE, deployed)
    known = [c.name for c in read_header(deployed).metadata.classes[1:]]
    say(f"{deployed} knows {', '.join(known)}; it was never taught {NEW}, and its training images are gone")
    say(f"{site} is a new site; its training images have labels for {NEW} only, those of the split val for everything")
    with _timed("add-class", stages):
        report = _teach(deployed, site, taught, how, Display(training=watch, explain=say), device)
    iou = _table(report)
    model, force = taught / "model.safetensors", ["--force"] if report["rejected"] else []
    with _timed("pictures", stages):
        scene = _draw(output, site, {BEFORE: deployed, AFTER: model}, iou)
    say("export: ONNX, a TensorRT engine if the package is installed, and the proof that neither costs anything extra")
    with _timed("export", stages):
        exported = export(model, deployed, site, output / "export", how["size"], force)
    say(f"video: the clip of the site through the exported model, and what {NEW} changed in it")
    with _timed("video", stages):
        video = show_clip(output, site, deployed, how["size"])
    with _timed("page", stages):
        new, old = output / "export" / "model.onnx", output / "deployed.onnx"
        if not screenshot_page(output / "page.png", scene, new, old):
            say(f"no browser found for a screenshot of the web page; open it with: rcil-serve http --model {new}")
    document = {
        "iou": iou,
        "verdict": f"{report['verdict']}, {report['reason']}",
        "training_images": report["preflight"]["train_images"],
        "evaluated_images": report["images"],
        "export": exported,
        "video": video,
        "stages": stages,
        "seconds": round(sum(stage["seconds"] for stage in stages.values()), 1),
        "cpu_seconds": round(sum(stage["cpu_seconds"] for stage in stages.values()), 1),
    }
    write_json(output / "report.json", document)
    return document


@contextmanager
def _timed(name: str, stages: dict[str, dict[str, float]]) -> Iterator[None]:
    """Record the wall time of a stage, and the CPU time that it and the programs that it starts need."""
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    yield
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": sum(os.times()[:4]) - cpu}
    stages[name] = {key: round(value, 1) for key, value in seconds.items()}


def _make_site(output: Path, site: Path, how: dict[str, Any]) -> None:
    """Generate the new site, if it does not exist yet; its training masks name the new class only."""
    wanted = {**{key: how[key] for key in ("images", "size", "frames")}, "only": NEW}
    if not site.exists():
        make_site(site, **wanted, seed=SEED)
    elif any(made_with(site).get(key) != value for key, value in {**wanted, "size": list(how["size"])}.items()):
        raise ConfigError(f"{output} contains a demo of another size", "Choose another folder, or remove this one.")


def _teach(
    deployed: Path, site: Path, output: Path, how: dict[str, Any], display: Display, device: str
) -> dict[str, Any]:
    """Add the class as `rcil add-class` does with no option but --minutes; returns its report.

    A machine that is too slow or too busy for the budget gets as many minutes as it needs, or the default budget, which
    is exceeded if necessary.
    """
    record = output / RECORD
    if record.exists():
        return _add(deployed, site, output, {**how, "minutes": recorded_minutes(record)}, display, device)
    while True:
        try:
            return _add(deployed, site, output, how, display, device)
        except BudgetError as error:
            display.explain(f"{error.message}; the demo will take longer")
            how = {**how, "minutes": error.minutes if error.minutes <= MAX_MINUTES else None}


def _add(
    deployed: Path, site: Path, output: Path, how: dict[str, Any], display: Display, device: str
) -> dict[str, Any]:
    request = step_request(
        deployed,
        site,
        [NEW],
        method=defaults.METHOD,
        training={**how["training"], "device": device},
        overrides=(),
        minutes=how["minutes"],
    )
    return add_class(request, output, resume=True, display=display)


def recorded_minutes(record: Path) -> float | None:
    """The time budget with which a run was begun; it must be continued with the same."""
    document = parse_yaml(record.read_text(encoding="utf-8"))
    return document.get("minutes") if isinstance(document, dict) else None


def _table(report: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """IoU in percent of every class before and after, on the split `val`."""
    old = report["old_classes"]
    after = {**{c["name"]: c["after"] for c in old}, **{c["name"]: c["iou"] for c in report["new_classes"]}}
    return {BEFORE: {c["name"]: c["before"] for c in old}, AFTER: after}


def _draw(output: Path, site: Path, paths: dict[str, Path], iou: dict[str, dict[str, float | None]]) -> Path:
    """Draw what both models see in some scenes, and the IoU per class; returns the image of the first scene."""
    data = read_site(site)
    scenes = pick_scenes(data, "val", NEW, DOMAINS)
    models = {title: load(path) for title, path in paths.items()}
    write_image(output / "demo.jpg", draw_grid(scenes, data, models), quality=QUALITY)
    names = list(iou[AFTER])
    before, after = ([_share(iou[title].get(name)) for name in names] for title in (BEFORE, AFTER))
    write_file(output / "iou.png", class_bars(names, before, after, labels=(BEFORE, AFTER)))
    return scenes[0].image


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
