"""The task file: data, protocol, network, method and schedule of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from rcil.core.device_names import check_device_name
from rcil.core.documents import parse_yaml
from rcil.core.errors import ConfigError, did_you_mean
from rcil.model.architecture import FrozenModel, NetworkShape
from rcil.presets import preset_names, preset_text
from rcil.train.compatibility import check_norm_precision

PATHS = ("data.root", "network.pretrained")
"""Keys whose values are paths."""
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Scale = Annotated[float, Field(gt=0, le=4)]


def _known_device(name: str) -> str:
    try:
        return check_device_name(name)
    except ConfigError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error


DeviceName = Annotated[str, AfterValidator(_known_device)]


class DataSection(FrozenModel):
    """Where images and masks are."""

    kind: Literal["site", "voc", "ade", "cityscapes"] = "site"
    root: Path
    """Relative paths are relative to the task file; those of a preset to the current folder."""
    train: str = "train"
    test: str = "val"
    """The split that results are reported on; never used to choose anything."""
    scale: Scale = 1.0
    """Size at which the network sees images, as a factor; masks and results keep theirs. Below 1 is faster, above 1
    shows small things to the network's coarse grid."""
    variant: Literal["clean", "legacy"] = "clean"
    """Of Cityscapes' domain protocols. `clean`: training cities train, validation cities test. `legacy`: the research
    code's cut of all 21 cities, which trains on most of its test images; see `legacy_cut`."""

    @model_validator(mode="after")
    def _legacy_is_a_whole(self) -> Self:
        if self.variant == "legacy" and (self.kind != "cityscapes" or (self.train, self.test) != ("train", "val")):
            raise ValueError("variant legacy cuts Cityscapes' own splits: it goes with kind cityscapes, train and val")
        return self


class ProtocolSection(FrozenModel):
    """Which classes, or which domains, come when."""

    split: str | None = None
    """X-Y, for example 15-1."""
    steps: tuple[tuple[str, ...], ...] | None = None
    """Or the class names of each step, background in none of them: it is always there."""
    domains: str | None = None
    """Or X-Y over domains (cities, weathers), for example 11-5: every step has all classes, on images of its own."""
    domain_steps: tuple[tuple[str, ...], ...] | None = None
    """Or the domain names of each step; images of other domains are left out."""
    domain_order: tuple[str, ...] | None = None
    """All domains in the order that `domains` counts them in; by default sorted, or the research code's for
    Cityscapes."""
    setting: Literal["overlapped", "disjoint"] = "overlapped"
    order: str | None = None
    """A class order that ships with the package, for example voc-b."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = ("split", "steps", "domains", "domain_steps")
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) != 1:
            found = f"not {' and '.join(given)}" if given else "none is there"
            raise ValueError(f"give exactly one of {', '.join(ways)}; {found}")
        if self.order is not None and self.split is None:
            raise ValueError("order goes with split; steps has its own order, and domains have domain_order")
        if self.domain_order is not None and self.domains is None:
            raise ValueError("domain_order goes with domains; domain_steps has its own order")
        if self.setting == "disjoint" and self.by_domain:
            raise ValueError("setting disjoint is about classes; domains never overlap")
        return self

    @property
    def by_domain(self) -> bool:
        """Whether steps bring new scenes rather than new classes."""
        return self.domains is not None or self.domain_steps is not None


class NetworkSection(NetworkShape):
    """The network, and the weights that its backbone starts from."""

    pool_window: Count | None = None
    """Side of the window that the pooled path of the head averages over in evaluation, in places of its map; None: all.
    Where images are much larger than training crops, crop / output_stride keeps the path at what it was trained on."""
    pretrained: Literal["imagenet"] | Path | None = None
    """A backbone checkpoint made with `rcil import`; `imagenet` is at hand for efficientnet_lite0."""


class MethodSection(FrozenModel):
    """The method by name, and its options."""

    name: str = "rcil"
    options: dict[str, Any] = Field(default_factory=dict)
    others: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options of other methods, for `rcil compare`."""


class TrainingSection(FrozenModel):
    """Schedule and optimiser; pairs are (step 0, later steps). Defaults are the paper's for VOC."""

    epochs: tuple[Count, Count] = (30, 30)
    lr: tuple[Positive, Positive] = (0.02, 0.001)
    classifier_lr: Positive = 1.0
    """Learning rate of the classifier as a multiple of `lr`: more lets new rows grow in short steps. In the paper 1."""
    epoch_images: Count | None = None
    """An epoch has this many images: a part of those there are, drawn anew each time, or all of them several times,
    each time another crop. So every step trains for as long as any other. By default, as in the paper, an epoch is
    all images."""
    batch: Count = 24
    """Images of an iteration, over all processes."""
    crop: Annotated[int, Field(ge=32)] = 512
    scale: tuple[Positive, Positive] = (0.5, 2.0)
    """Random resize of the crop's content, on top of `data.scale`."""
    focus: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of crops that are sure to hold a class of the step, each class as likely as another: for small or rare
    things. The paper has none."""
    memory: Annotated[int, Field(ge=0)] = 0
    """Training images of every earlier class that later steps see again, with the labels of their own step. The paper
    has none, and a site may not be allowed any."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the images of an epoch that are drawn from the memory; None: every image as often as another."""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """`sgd` is the paper's; `adamw` learns rare classes in fewer iterations, at a hundredth of the learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    power: Positive = 0.9
    """Of the polynomial decay, per iteration."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of a step's training images that choose the best epoch."""
    validate_every: Count = 1
    """Epochs between two looks at the held-out images; the last epoch always has one."""
    validate_images: Count | None = None
    """A look is at this many of them, evenly spread, instead of all: for large sets and short epochs."""
    settle: Annotated[int, Field(ge=0)] = 0
    """Batches on which norm statistics are taken again before every such look, with branches mixed as in evaluation:
    for short trainings with drop-path. The paper has none."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that decode and augment."""
    accumulate: Count = 1
    """Pieces that a process computes its share of a batch in: less memory, same gradient but for the norms' statistics,
    which are those of a piece."""
    device: DeviceName = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`. `auto` takes a GPU where torch has one; a run may be resumed on another."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Mixed precision; fp16 comes with a loss scaler."""
    channels_last: bool = False
    """Keep channels innermost in memory: faster for EfficientNet and on recent GPUs."""
    deterministic: bool = False
    """Only kernels that give the same bits every time, which on a GPU is not the default; see docs/gpu.md for what it
    costs. CPUs give the same bits anyway."""
    save_every: Count = 200
    """Iterations between two savings of the resume state; every epoch saves too."""

    @model_validator(mode="after")
    def _range(self) -> Self:
        low, high = self.scale
        if low > high:
            raise ValueError(f"scale goes from small to large, not from {low:g} to {high:g}")
        return self


class Task(FrozenModel):
    """A whole run."""

    name: str = "task"
    seed: Annotated[int, Field(ge=0)] = 0
    data: DataSection
    protocol: ProtocolSection
    network: NetworkSection = NetworkSection()
    method: MethodSection = MethodSection()
    training: TrainingSection = TrainingSection()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.training.channels_last and self.network.width < 8:
            # torch 2.13 writes past its memory in strided 1x1 convs of four channels in this layout.
            raise ValueError("training.channels_last needs a network.width of at least 8")
        check_norm_precision(self.network.norm, self.training.precision)
        if self.training.memory and self.protocol.by_domain:
            raise ValueError("training.memory keeps images of earlier classes; steps by domain have none")
        return self


def load_task(path: Path, overrides: list[str] | None = None) -> Task:
    """Read a task file or a preset and apply `a.b=c` overrides; unknown keys get a suggestion.

    Args:
        path: A YAML file, or the name of a preset if there is no such file.
        overrides: Dotted keys with YAML values, for example `training.batch=8`.
    """
    preset = not path.is_file() and str(path) in preset_names()
    try:
        text = preset_text(str(path)) if preset else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Give a YAML file (the README shows one) or a preset."
        if path.parent == Path():
            hint += f" {did_you_mean(path.name, preset_names())}"
        raise ConfigError(f"cannot read the task {path}", hint) from error
    document = parse_document(text, path, "data, protocol, network, method, training")
    for override in overrides or []:
        apply_override(document, override)
        _from_here(document, override.partition("=")[0].strip())
    try:
        task = Task.model_validate(document)
    except ValidationError as error:
        raise explained(error, path) from error
    folder = Path() if preset else path.parent.resolve()  # a run may be resumed from another folder
    return task.model_copy(
        update={"data": _anchored(task.data, folder), "network": _anchored_network(task.network, folder)}
    )


def parse_document(text: str, path: Path, sections: str) -> dict[str, Any]:
    """The sections of a task file; `path` and the names of the `sections` are for messages."""
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not YAML: {error}", "Check indentation and colons.") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a task", f"A task has the sections {sections}.")
    return document


def apply_override(document: dict[str, Any], override: str) -> None:
    """Set one dotted key."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"'{override}' is not an override", "Write key=value, for example training.batch=8.")
    *sections, last = key.strip().split(".")
    place = document
    for section in sections:
        inner = place.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"'{section}' in '{override}' is not a section", "Check the key.")
        place = inner
    try:
        place[last] = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"the value in '{override}' is not YAML", "Quote it.") from error


def _from_here(document: dict[str, Any], key: str) -> None:
    """What is typed on a command line is relative to where it is typed, not to the task file."""
    if key in PATHS:
        section, name = key.split(".")
        value = document[section][name]
        if isinstance(value, str) and value != "imagenet":
            document[section][name] = str(Path(value).absolute())


def explained(error: ValidationError, path: Path, task: type[BaseModel] = Task) -> ConfigError:
    """The first thing that is wrong with a task of this type, in the user's terms."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        section: Any = task
        for part in first["loc"][:-1]:
            section = section.model_fields[part].annotation
        return ConfigError(f"{path}: unknown key '{where}'", did_you_mean(str(first["loc"][-1]), section.model_fields))
    return ConfigError(f"{path}: {where or 'task'}: {first['msg']}", "Correct the value.")


def _anchored(section: DataSection, folder: Path) -> DataSection:
    return section.model_copy(update={"root": folder / section.root})


def _anchored_network(section: NetworkSection, folder: Path) -> NetworkSection:
    if not isinstance(section.pretrained, Path):
        return section
    return section.model_copy(update={"pretrained": folder / section.pretrained})
