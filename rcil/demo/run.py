"""Runs the demo: a generated site, a first model, one more class with RCIL and with fine-tuning, export, video."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rcil.checkpoint.file import load
from rcil.core.documents import write_json
from rcil.core.errors import ConfigError
from rcil.core.files import replacing, working_in
from rcil.core.images import write_image
from rcil.data.site import read_site
from rcil.demo.browser import photograph_page
from rcil.demo.picture import draw_grid, pick
from rcil.demo.programs import deploy, export, show_clip
from rcil.report.plots import class_bars
from rcil.scenes import make_site
from rcil.scenes.site import made_with
from rcil.site.request import make_request
from rcil.site.run import Display, add_class
from rcil.train.loop import Listener
from rcil.train.run import run_task
from rcil.train.task import Task

OLD, NEW = ("building", "vegetation"), "road"
DOMAINS = ("sunny",)
"""One camera and one weather, so that a few minutes are enough."""
METHODS = {"fine-tuning": {}, "rcil": {"distillation": 1.0, "gamma": 0.0002}}
"""Options for a small network and a hundred iterations; the paper has 100 and 0.01 for ResNet-101 on VOC."""
FULL = {"images": 240, "size": (160, 208), "frames": 48, "crop": 128, "epochs": (18, 10), "lr": (0.05, 0.05)}
QUICK = {"images": 40, "size": (64, 96), "frames": 2, "crop": 64, "epochs": (1, 1), "lr": (0.05, 0.05)}
MAX_DROP = 15.0
"""Points; background is an old class too, and the first blunders of a new class are at its expense."""
Watch = Callable[[], AbstractContextManager[Listener]]


def run(output: Path, *, quick: bool, say: Callable[[str], None], watch: Watch, device: str = "auto") -> dict[str, Any]:
    """Everything; returns what was also written to `report.json`. Called again it continues where it stopped.

    Args:
        output: Folder for the site, all runs, pictures and the report.
        quick: A few iterations: shows that all works, learns nothing.
        say: Told what happens, a line at a time.
        watch: Shows a training.
        device: Where the networks train: `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    with working_in(output):
        return _run(output, {**(QUICK if quick else FULL), "device": device}, say, watch)


def _run(output: Path, how: dict[str, Any], say: Callable[[str], None], watch: Watch) -> dict[str, Any]:
    started = time.perf_counter()
    site = output / "site"
    wanted = {key: how[key] for key in ("images", "size", "frames")}
    if not site.exists():
        make_site(site, **wanted, domains=DOMAINS)
    elif any(made_with(site).get(key) != value for key, value in {**wanted, "size": list(how["size"])}.items()):
        raise ConfigError(f"{output} holds a demo of another size", "Name another folder, or remove this one.")
    say(f"step 0 teaches {', '.join(OLD)}; there are roads in the pictures, but nobody labels them")
    first = _first_model(output, site, how, watch)
    reports = {}
    for name, options in METHODS.items():
        say(f"step 1 teaches {NEW} with {name}; nobody labels the rest any more")
        reports[name] = _taught(name, options, first, site, output / name, how, watch)
    iou = _table(reports)
    _draw(output, site, first, iou)
    force = ["--force"] if reports["rcil"]["rejected"] else []
    taught = output / "rcil" / "model.safetensors"
    fold = deploy(output, taught, site, (*OLD, NEW), force)
    say("export: ONNX, a TensorRT engine where the package is there, and the proof that both cost nothing extra")
    exported = export(taught, first, site, output / "export", how["size"], force)
    say("video: the clip of the site through the exported model, and what step 1 changed in it")
    video = show_clip(output, site, first, how["size"])
    (scene,) = pick(read_site(site), "val", (*OLD, NEW), 1)
    new, old = output / "export" / "model.onnx", output / "first.onnx"
    if not photograph_page(output / "page.png", scene.image, new, old):
        say("no browser here to photograph the page with; see it yourself: rcil-serve http --model " + str(new))
    document = {
        "iou": iou,
        "verdicts": {name: report["rejected"] for name, report in reports.items()},
        "fold": fold,
        "export": exported,
        "video": video,
        "seconds": round(time.perf_counter() - started, 1),
    }
    write_json(output / "report.json", document)
    return document


def _training(how: dict[str, Any]) -> dict[str, Any]:
    return {
        "epochs": how["epochs"],
        "lr": how["lr"],
        "batch": 4,
        "crop": how["crop"],
        "scale": (0.75, 1.5),
        "workers": 0,
        "device": how["device"],
        "channels_last": True,
    }


def _first_model(output: Path, site: Path, how: dict[str, Any], watch: Watch) -> Path:
    """A plain network from ImageNet weights, as a site may have it in the field."""
    task = Task.model_validate(
        {
            "name": "demo",
            "data": {"root": site},
            "protocol": {"steps": [OLD]},
            "network": {"backbone": "efficientnet_lite0", "head_width": 64, "pretrained": "imagenet"},
            "method": {"name": "fine-tuning"},
            "training": _training(how),
        }
    )
    with watch() as listen:
        run_task(task, output / "first", resume=True, listen=listen)
    return output / "first" / "step0.safetensors"


def _taught(
    name: str, options: dict[str, Any], first: Path, site: Path, output: Path, how: dict[str, Any], watch: Watch
) -> dict[str, Any]:
    """The report of `rcil add-class`."""
    fields = {
        "model": first,
        "data": site,
        "classes": (NEW,),
        "method": {"name": name, "options": options},
        "max_drop": MAX_DROP,
        "training": {**_training(how), "epochs": how["epochs"][1:] * 2, "lr": how["lr"][1:] * 2},
    }
    return add_class(make_request(fields), output, resume=True, display=Display(training=watch))


def _table(reports: dict[str, dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """IoU in percent of every class after each training, on the images of `val`."""
    some = next(iter(reports.values()))
    rows: dict[str, dict[str, float | None]] = {"step 0": {c["name"]: c["before"] for c in some["old_classes"]}}
    for name, report in reports.items():
        old = {c["name"]: c["after"] for c in report["old_classes"]}
        rows[f"step 1, {name}"] = {**old, **{c["name"]: c["iou"] for c in report["new_classes"]}}
    return rows


def _draw(output: Path, site: Path, first: Path, iou: dict[str, dict[str, float | None]]) -> None:
    """What the three models see, and how much of each class they get right."""
    data = read_site(site)
    paths = {"step 0": first, **{name: output / name / "model.safetensors" for name in METHODS}}
    models = {title: load(path) for title, path in paths.items()}
    chosen = pick(data, "val", (*OLD, NEW), 3)
    write_image(output / "demo.jpg", draw_grid(chosen, data, models))
    forgot, kept = (iou[f"step 1, {name}"] for name in METHODS)
    names = list(kept)
    bars = class_bars(
        names,
        [_share(forgot[name]) for name in names],
        [_share(kept[name]) for name in names],
        labels=("fine-tuning", "RCIL"),
    )
    with replacing(output / "forgetting.png") as part:
        part.write_bytes(bars)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
