"""The verbs of `rcil` as functions: what `import rcil` offers beside `load` and `Model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from rcil import defaults
from rcil.attaching.model import attach_model
from rcil.core.allowed_imports import allowing
from rcil.core.log import Progress
from rcil.evaluation.evaluate import EvalReport
from rcil.inference import Model
from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD
from rcil.report.models import evaluate_models
from rcil.site.request import step_request
from rcil.site.run import Display
from rcil.site.run import add_class as teach
from rcil.tasks.load import load_task
from rcil.training.loop import Listener
from rcil.training.run import run_task


def attach(
    network: str | nn.Module,
    args: Mapping[str, Any] | None = None,
    *,
    classes: Sequence[str],
    weights: str | Path | None = None,
    factory: str | None = None,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    classifier: str | Sequence[str] | None = None,
    maps: Sequence[str] | None = None,
) -> Model:
    """Make a network of another library ready for RC: find its convs, norms, classifier and maps.

    Naming a factory here allows its package for the rest of the process. Nothing about what the network computes
    changes; branches are added when a class is taught.

    Example:
        >>> import sys, types
        >>> from torch import nn
        >>> def tiny(classes: int) -> nn.Module:
        ...     body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU())
        ...     return nn.Sequential(body, nn.Conv2d(8, classes, 1))
        >>> tiny.__module__ = "my_networks"
        >>> sys.modules["my_networks"] = types.ModuleType("my_networks")
        >>> sys.modules["my_networks"].tiny = tiny
        >>> model = rcil.attach("my_networks:tiny", {"classes": 2}, classes=["background", "road"])
        >>> model.network.arch.classifier
        ('1',)

    Args:
        network: The import path `package.module:name` of a builder, or a module that `factory` builds.
        args: Keyword arguments of the builder: numbers, texts, lists and dictionaries. A dictionary with the keys
            `factory` and `args` is built first.
        classes: Class names in the order of the output channels, background first.
        weights: A state dict (`.pth`, `.pt`) or safetensors file; by default those that the builder or module has.
        factory: The import path of the builder, if `network` is a module.
        mean: Mean of the colour channels that the network was trained with, as a share of 255.
        std: Standard deviation of the colour channels, likewise.
        classifier: Name of the conv with one row per class, or of several whose outputs are added; found by default.
        maps: Names of the modules whose outputs are distilled; by default the ends of up to four stages.
    """
    return attach_model(
        network,
        args or {},
        classes=classes,
        weights=None if weights is None else Path(weights),
        factory=factory,
        mean=mean,
        std=std,
        classifier=classifier,
        maps=maps,
    )


@dataclass(frozen=True)
class StepReport:
    """What `add_class` wrote and measured.

    Example:
        >>> report = rcil.add_class(
        ...     "model.safetensors", data="my_site", classes=["forklift"], output="step1", epochs=1, crop=64, workers=0
        ... )
        >>> [c["name"] for c in report.document["new_classes"]]
        ['forklift']
        >>> report.model.name
        'model.safetensors'
        >>> report.verdict in ("accepted", "uncertain", "rejected")
        True
    """

    model: Path
    """The new checkpoint."""
    document: dict[str, Any]
    """The content of `report.json`: old and new classes with their IoU, largest drop, checks and pictures."""

    @property
    def rejected(self) -> str | None:
        """Why the model must not be deployed; None if it may be."""
        reason: str | None = self.document["rejected"]
        return reason

    @property
    def verdict(self) -> Literal["accepted", "uncertain", "rejected"]:
        """`accepted` or `rejected` if the measurements decide it, `uncertain` if they are too few or too close."""
        outcome: Literal["accepted", "uncertain", "rejected"] = self.document["verdict"]
        return outcome

    @property
    def ok(self) -> bool:
        """Whether the model is not rejected; `verdict` tells whether it is certain."""
        return self.rejected is None


def add_class(
    model: str | Path | Model,
    *,
    data: str | Path,
    classes: Sequence[str],
    output: str | Path,
    method: str = defaults.METHOD,
    options: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    batch: int | None = None,
    crop: int | None = None,
    workers: int = defaults.WORKERS,
    scale: float | None = None,
    max_drop: float = defaults.MAX_DROP,
    min_new: float = defaults.MIN_NEW,
    max_background_drop: float | None = None,
    seed: int = defaults.SEED,
    device: str = "auto",
    overrides: Sequence[str] = (),
    resume: bool = False,
    allow: Sequence[str] = (),
    display: Display | None = None,
) -> StepReport:
    """Teach a model further classes from labelled site images, and measure what it forgot.

    A rejected model is written too, with the reason in its metadata; `report.ok` is False then.

    Settings that are None are those that the checkpoint was trained with; crops fit into the images, and the length of
    the training follows from the images and from `minutes`. `report.document["recipe"]` has the reason of every value.

    Example:
        >>> report = rcil.add_class(
        ...     "model.safetensors", data="my_site", classes=["forklift"], output="new", epochs=1, crop=64, workers=0
        ... )
        >>> [c.name for c in rcil.load(report.model).classes]
        ['background', 'cone', 'ball', 'forklift']

    Args:
        model: The checkpoint to start from, or a model. The norms of a folded one are fitted to training images of the
            site. A model without a file, such as one of `attach`, is written beside `output`: NAME.start.safetensors.
        data: The site folder with images and masks.
        classes: Names of the classes to teach, as in the site folder.
        output: Folder for the new model, the report and pictures.
        method: Name of the continual learning method.
        options: Options of the method by name.
        minutes: Time limit of the whole call; by default 10 on a CPU and none on a GPU.
        epochs: Passes over the training images, instead of `minutes`.
        lr: Learning rate at the start.
        batch: Images per iteration.
        crop: Side of the training crops in pixels.
        workers: Processes that decode and augment images.
        scale: The network sees images at this multiple of their size.
        max_drop: IoU points that a named old class may lose.
        min_new: IoU in percent that a new class must reach; 0 accepts any.
        max_background_drop: IoU points that background may lose; None: any.
        seed: Seed of all random numbers.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        overrides: Further settings as dotted keys with YAML values, for example `training.momentum=0.8`.
        resume: Continue an interrupted run in `output`.
        allow: Packages whose code may build the network, if it is one of another library.
        display: Shows progress; nothing is shown by default.
    """
    if isinstance(model, Model):
        model = _stored(model, Path(output))
    training = {"epochs": epochs, "lr": lr, "batch": batch, "crop": crop, "workers": workers, "device": device}
    with allowing(allow):
        request = step_request(
            model,
            data,
            classes,
            method=method,
            options=options,
            training=training,
            overrides=overrides,
            scale=scale,
            minutes=minutes,
            max_drop=max_drop,
            min_new=min_new,
            max_background_drop=max_background_drop,
            seed=seed,
        )
        document = teach(request, Path(output), resume=resume, display=display)
    return StepReport(Path(output) / "model.safetensors", document)


def _stored(model: Model, output: Path) -> Path:
    """The file of a model; one without a file is saved next to the folder `output`."""
    if model.path is not None:
        return model.path
    path = output.with_name(f"{output.name}.start.safetensors")
    model.save(path)
    return path


def train(
    task: str | Path,
    output: str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    allow: Sequence[str] = (),
    listen: Listener = lambda event: None,
) -> dict[str, Any]:
    """Train all steps of a continual protocol; returns the content of `results.json`.

    Example:
        >>> results = rcil.train("task.yaml", "run", overrides=["training.epochs=[1, 1]"])
        >>> [step["teaches"] for step in results["steps"]]
        [['background', 'cone', 'ball'], ['forklift']]

    Args:
        task: A task file, or the name of a preset.
        output: Folder of the run.
        overrides: Changes to the task as dotted keys with YAML values, for example `training.batch=8`.
        resume: Continue an interrupted run in `output`.
        allow: Packages whose code may build the network, if it is one of another library.
        listen: Called after every iteration and epoch.
    """
    with allowing(allow):
        return run_task(load_task(Path(task), list(overrides)), Path(output), resume=resume, listen=listen)


def evaluate(
    model: str | Path,
    data: str | Path,
    *,
    split: str = defaults.SPLIT,
    scale: float | None = None,
    test_crop: int | None = None,
    void_background: bool = False,
    device: str = "auto",
    allow: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
) -> EvalReport:
    """IoU of a checkpoint on a split of a site folder, per class and over old, new and all classes.

    Example:
        >>> report = rcil.evaluate("model.safetensors", "my_site")
        >>> 0 <= report.all <= 1
        True
        >>> [c.name for c in report.classes]
        ['background', 'cone', 'ball']

    Args:
        model: The checkpoint, of any form.
        data: The site folder; classes are matched by name.
        split: Name of the split.
        scale: The network sees images at this multiple of their size, by default as in its training.
        test_crop: Side of the square in the middle that is evaluated, after the shorter side was resized to it; None
            evaluates whole images.
        void_background: Whether background in the masks means "unlabelled" and is ignored, as in CamVid.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        allow: Packages whose code may build the network, if it is one of another library.
        progress: Called with the number of evaluated images and their total.
    """
    with allowing(allow):
        (evaluated,) = evaluate_models(
            [Path(model)],
            Path(data),
            split,
            scale=scale,
            test_crop=test_crop,
            void_background=void_background,
            device=device,
            progress=progress,
        )
    return evaluated.report
