"""Run the demo: generate a site, train a model, add a class with RCIL and with fine-tuning, export, segment a video."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rcil.core.documents import write_json
from rcil.core.errors import ConfigError
from rcil.core.files import working_in, write_file
from rcil.core.images import write_image
from rcil.core.log import Notify
from rcil.data.site import read_site
from rcil.demo.picture import draw_grid, pick
from rcil.demo.programs import deploy, export, screenshot_page, show_clip
from rcil.inference import load
from rcil.report.plots import class_bars
from rcil.scenes import make_site
from rcil.scenes.site import made_with
from rcil.site.request import make_request
from rcil.site.run import Display, add_class
from rcil.tasks.task import Task
from rcil.training.loop import Listener
from rcil.training.run import run_task

OLD, NEW = ("building", "vegetation"), "road"
DOMAINS = ("sunny",)
"""A single domain, so that a few minutes of training are enough."""
METHODS = {"fine-tuning": {}, "rcil": {"distillation": 1.0, "gamma": 0.0002}}
"""Options for a small network and a hundred iterations; the paper uses 100 and 0.01 for ResNet-101 on VOC."""
FULL = {"images": 240, "size": (160, 208), "frames": 48, "crop": 128, "epochs": (18, 10), "lr": (0.05, 0.05)}
QUICK = {"images": 40, "size": (64, 96), "frames": 2, "crop": 64, "epochs": (1, 1), "lr": (0.05, 0.05)}
MAX_DROP = 15.0
"""Maximum drop in points. A hundred iterations on generated images cost vegetation about ten."""
Watch = Callable[[], AbstractContextManager[Listener]]


def run(output: Path, *, quick: bool, say: Notify, watch: Watch, device: str = "auto") -> dict[str, Any]:
    """Run the demo; returns the content of `report.json`. A repeated call continues where the last one stopped.

    Args:
        output: Folder for the site, all runs, pictures and the report.
        quick: Run only a few iterations, to test the installation.
        say: Receives one line per stage.
        watch: Shows the progress of a training.
        device: Training device: `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    with working_in(output):
        return _run(output, {**(QUICK if quick else FULL), "device": device}, say, watch)


def _run(output: Path, how: dict[str, Any], say: Notify, watch: Watch) -> dict[str, Any]:
    started = time.perf_counter()
    site = output / "site"
    wanted = {key: how[key] for key in ("images", "size", "frames")}
    if not site.exists():
        make_site(site, **wanted, domains=DOMAINS)
    elif any(made_with(site).get(key) != value for key, value in {**wanted, "size": list(how["size"])}.items()):
        raise ConfigError(f"{output} contains a demo of another size", "Choose another folder, or remove this one.")
    say(f"step 0 teaches {', '.join(OLD)}; roads appear in the images, but are not labelled")
    first = _first_model(output, site, how, watch)
    reports = {}
    for name, options in METHODS.items():
        say(f"step 1 teaches {NEW} with {name}; the other classes are no longer labelled")
        reports[name] = _taught(name, options, first, site, output / name, how, watch)
    iou = _table(reports)
    _draw(output, site, first, iou)
    force = ["--force"] if reports["rcil"]["rejected"] else []
    taught = output / "rcil" / "model.safetensors"
    (scene,) = pick(read_site(site), "val", (*OLD, NEW), 1)
    fold = deploy(output, taught, scene.image, force)
    say("export: ONNX, a TensorRT engine if the package is installed, and the proof that neither costs anything extra")
    exported = export(taught, first, site, output / "export", how["size"], force)
    say("video: the clip of the site through the exported model, and what step 1 changed in it")
    video = show_clip(output, site, first, how["size"])
    new, old = output / "export" / "model.onnx", output / "first.onnx"
    if not screenshot_page(output / "page.png", scene.image, new, old):
        say("no browser found for a screenshot of the web page; open it with: rcil-serve http --model " + str(new))
    document = {
        "iou": iou,
        "verdicts": {name: f"{report['verdict']}, {report['reason']}" for name, report in reports.items()},
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
    """Train a plain network from ImageNet weights, like a deployed model of a site."""
    task = Task.model_validate(
        {
            "name": "demo",
            "recipe": "paper",
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
    """Add the class with one method; returns the report of `rcil add-class`."""
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
    """IoU in percent of every class after each training, on the split `val`."""
    some = next(iter(reports.values()))
    rows: dict[str, dict[str, float | None]] = {"step 0": {c["name"]: c["before"] for c in some["old_classes"]}}
    for name, report in reports.items():
        old = {c["name"]: c["after"] for c in report["old_classes"]}
        rows[f"step 1, {name}"] = {**old, **{c["name"]: c["iou"] for c in report["new_classes"]}}
    return rows


def _draw(output: Path, site: Path, first: Path, iou: dict[str, dict[str, float | None]]) -> None:
    """Draw the predictions of the three models, and the IoU per class."""
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
    write_file(output / "forgetting.png", bars)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
