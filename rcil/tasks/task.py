"""The task file: data, protocol, network, method and schedule of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from rcil import defaults
from rcil.core.device_names import check_device_name
from rcil.core.errors import ConfigError
from rcil.losses.class_weights import ClassWeights
from rcil.model.architecture import FrozenModel, NetworkShape
from rcil.model.attached import Args, Factory
from rcil.model.metadata import Level, Spread
from rcil.tasks import limits
from rcil.tasks.compatibility import check_augmentation, check_norm_precision
from rcil.tasks.recipes import Recipe, with_recipe

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Scale = Annotated[float, Field(ge=0.01, le=defaults.MAX_SCALE)]
Side = Annotated[int, Field(ge=32, le=limits.MAX_SIDE)]
Augmentation = Literal["resize_and_crop", "random_resized_crop"]


def _known_device(name: str) -> str:
    try:
        return check_device_name(name)
    except ConfigError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error


DeviceName = Annotated[str, AfterValidator(_known_device)]


class DataSection(FrozenModel):
    """The dataset."""

    kind: Literal["site", "voc", "ade", "cityscapes"] = "site"
    root: Path
    """Relative paths are relative to the task file; those of a preset to the current folder."""
    train: str = "train"
    test: str = "val"
    """The split that results are reported on; never used to choose anything."""
    scale: Scale = 1.0
    """Factor by which images are resized for the network; masks and results keep their size. Values below 1 are faster,
    values above 1 help with small objects."""
    void_background: bool = False
    """Whether background on disk means "unlabelled" rather than "no class": its pixels are ignored in training and
    evaluation, like 255."""
    test_crop: Side | None = None
    """Evaluate on squares of this side: the shorter side of images and masks is resized to it, and the middle is cut
    out. The published codes of MiB, PLOP and RCIL do so with 512 pixels. None evaluates whole images."""
    variant: Literal["clean", "legacy"] = "clean"
    """Split for the domain protocols of Cityscapes. `clean`: training cities train, validation cities test. `legacy`:
    the research code's split of all 21 cities, which trains on most of its test images; see `legacy_cut`."""

    @model_validator(mode="after")
    def _legacy_is_a_whole(self) -> Self:
        if self.variant == "legacy" and (self.kind != "cityscapes" or (self.train, self.test) != ("train", "val")):
            raise ValueError("variant legacy needs kind cityscapes with the splits train and val")
        return self


class ProtocolSection(FrozenModel):
    """The classes or domains of each step."""

    split: str | None = None
    """An X-Y protocol over classes, for example 15-1."""
    steps: tuple[tuple[str, ...], ...] | None = None
    """Alternatively, the class names of each step, without background, which is always included."""
    domains: str | None = None
    """Alternatively, an X-Y protocol over domains such as cities, for example 11-5. Every step has all classes."""
    domain_steps: tuple[tuple[str, ...], ...] | None = None
    """Alternatively, the domain names of each step; images of other domains are not used."""
    domain_order: tuple[str, ...] | None = None
    """The order in which `domains` counts all domains. By default they are sorted; Cityscapes uses the research code's
    order."""
    setting: Literal["overlapped", "disjoint"] = "overlapped"
    order: str | None = None
    """A class order that ships with the package, for example voc-b."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = ("split", "steps", "domains", "domain_steps")
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) != 1:
            found = f"not {' and '.join(given)}" if given else "none is given"
            raise ValueError(f"give exactly one of {', '.join(ways)}; {found}")
        if self.order is not None and self.split is None:
            raise ValueError("order needs split; steps define their own order, and domains use domain_order")
        if self.domain_order is not None and self.domains is None:
            raise ValueError("domain_order needs domains; domain_steps define their own order")
        if self.setting == "disjoint" and self.by_domain:
            raise ValueError("setting disjoint applies to classes only; domains never overlap")
        return self

    @property
    def by_domain(self) -> bool:
        """Whether steps add domains rather than classes."""
        return self.domains is not None or self.domain_steps is not None


class NetworkSection(NetworkShape):
    """The network, and the weights that its backbone starts from."""

    output_stride: Literal[8, 16] = 16
    pool_window: Count | None = None
    """Side of the window that the pooled path of the head averages over in evaluation, in pixels of its map; None: all.
    Where images are much larger than training crops, crop / output_stride keeps the path at what it was trained on."""
    pretrained: Literal["imagenet"] | Path | None = None
    """A backbone checkpoint made with `rcil import`; `imagenet` is at hand for EfficientNet-lite. None starts from
    random weights."""
    slope: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Negative slope of the leaky ReLU; 0 is a ReLU. None: that of the pretrained weights, 0.01 without any."""
    factory: Factory | None = None
    """A network of another library: the import path `package.module:name` of its builder, whose package must be
    allowed with --allow-import. The keys above have no effect on it."""
    args: Args = Field(default_factory=dict)
    """Arguments of the factory, among them the number of classes of step 0 with background."""
    weights: Path | None = None
    """Weights that the network of the factory starts from: a state dict or safetensors file."""
    mean: tuple[Level, Level, Level] | None = None
    """Mean of the colour channels of images for the network of the factory, as shares of 255. None: ImageNet's."""
    std: tuple[Spread, Spread, Spread] | None = None
    """Their standard deviation. None: ImageNet's."""

    @field_validator(*limits.NETWORK)
    @classmethod
    def _limited(cls, value: Any, info: ValidationInfo) -> Any:
        limits.check_limits(value, limits.NETWORK[info.field_name or ""])
        return value

    @model_validator(mode="after")
    def _of_a_factory(self) -> Self:
        given = [key for key in ("args", "weights", "mean", "std") if getattr(self, key)]
        if given and self.factory is None:
            raise ValueError(f"{given[0]} needs factory, which names the builder of another library's network")
        return self


class MethodSection(FrozenModel):
    """The method and its options."""

    name: str = "rcil"
    options: dict[str, Any] = Field(default_factory=dict)
    others: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options of methods by name, for `rcil compare` and for runs whose `name` is changed with `--set`."""


class TaskMethodSection(MethodSection):
    """The method of a task file."""

    lr: dict[str, tuple[Positive, Positive]] = Field(default_factory=dict)
    """Learning rates (step 0, later steps) of methods by name, where they differ from `training.lr`."""


class TrainingSection(FrozenModel):
    """Schedule and optimiser; pairs are (step 0, later steps). Defaults are the paper's for VOC."""

    epochs: tuple[Count, Count] = (30, 30)
    lr: tuple[Positive, Positive] = (0.02, 0.001)
    classifier_lr: Positive = 1.0
    """Learning rate of the classifier, relative to `lr`. A larger value helps new classes in short steps. Paper: 1."""
    backbone_lr: Positive = 1.0
    """Learning rate of the backbone, relative to `lr`. A smaller value keeps pretrained features. Paper: 1."""
    warmup: Annotated[float, Field(ge=0)] = 0.0
    """Epochs during which the learning rate rises linearly from 1 % to `lr`. Paper: 0."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay per iteration of the exponential moving average of the weights, which is validated and kept in place of
    the weights themselves; 0 is off. Early averages are shorter: iteration i decays by at most (1 + i) / (10 + i).
    Paper: 0."""
    class_weights: ClassWeights = "none"
    """Weights of the pixels in the cross entropy, by the share p of their class in the training images of the step.
    `enet`: 1 / ln(1.02 + p). `median_frequency`: median of all p / p, with p over the images that contain the class.
    `root_frequency`: the square root of that, which helps thin objects and leaves classes alone that are rare only
    because few images contain them. The weights are scaled to a mean of 1 over all pixels. Paper: `none`."""
    freeze_stages: Annotated[int, Field(ge=0, le=4)] = 0
    """Number of backbone stages, counted from the input, that later steps do not train; above 0 the stem is frozen too.
    Frozen stages compute what they did before the step, without a backward pass, so that steps are faster. Paper: 0."""
    epoch_images: Count | None = None
    """Number of images per epoch, so that all steps train equally long. Fewer than available: a new random subset every
    epoch. More: images repeat with different crops. By default, as in the paper, an epoch has all images."""
    oversample: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How much more often images of rare classes are drawn: (median of all f / f) ** oversample times, at least once,
    with f the share of the images that contain the rarest class of an image. Paper: 0."""
    batch: Count = 24
    """Batch size over all processes."""
    crop: Side = 512
    augmentation: Augmentation = "resize_and_crop"
    """`resize_and_crop`: the image is resized by a random factor, and a square is cut from it. `random_resized_crop`:
    a random part of the image is resized to the square, which changes its ratio of width to height, as in the published
    codes of MiB, PLOP and RCIL. Both flip half of the images."""
    scale: tuple[Positive, Positive] = (0.5, 2.0)
    """`resize_and_crop`: range of the resize factor, multiplied by `data.scale`. `random_resized_crop`: range of the
    share of the image's area; draws above 1 do not fit and are repeated."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Strength of the random changes of brightness, contrast and saturation (factors 1 - jitter to 1 + jitter) and of
    hue (a tenth of it, as a share of the colour circle). Paper: 0."""
    focus: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of crops that are guaranteed to contain a class of the step, all classes equally likely. Helps with small
    or rare objects. Paper: 0."""
    memory: Annotated[int, Field(ge=0)] = 0
    """Number of training images per earlier class that later steps replay, with the labels of their own step. Paper: 0;
    a site may not be allowed to keep any."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the images of an epoch that come from the memory. None: all images are equally likely."""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """The paper uses `sgd`. `adamw` learns rare classes in fewer iterations, with a learning rate 100 times lower."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    power: Positive = 0.9
    """Exponent of the polynomial learning rate decay, applied per iteration."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the training images of a step that is held out for validation. 0 trains on all images, as the published
    scripts do, and needs `keep: last`."""
    keep: Literal["best", "last"] = "best"
    """The epoch that a step keeps: the `best` on the held-out images, or the `last`. Choosing the best uses labels of
    old classes that a continual step does not have; the paper's presets keep the last."""
    validate_every: Count | None = None
    """Epochs between two validations on the held-out images; the last epoch is then validated too. By default every
    epoch is validated if the best is kept, and none if the last is kept."""
    validate_images: Count | None = None
    """Number of held-out images per validation, evenly spread; None uses all. For large datasets and short epochs."""
    finishing_images: Count = 200
    """Approximate number of whole training images that a method may look at before and after a step."""
    settle: Annotated[int, Field(ge=0)] = 0
    """Number of batches on which batch norm is recalibrated before each validation, with branches mixed as in
    evaluation. For short trainings with drop-path. Paper: 0."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Number of data loading processes."""
    accumulate: Count = 1
    """Number of gradient accumulation steps per process. Saves memory; the gradient is the same except for batch norm
    statistics, which are computed per piece."""
    device: DeviceName = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`. `auto` uses a GPU if torch finds one. A run may be resumed on another
    device."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of autocast; fp16 uses a loss scaler."""
    channels_last: bool = False
    """Use the channels-last memory format, which is faster for EfficientNet and on recent GPUs."""
    deterministic: bool = False
    """Use deterministic GPU kernels only; docs/gpu.md shows what this costs. Training on a CPU is always
    deterministic."""
    save_every: Count = 200
    """Iterations between two saves of the resume state, which is also saved after every epoch."""

    @model_validator(mode="before")
    @classmethod
    def _best_needs_validation(cls, values: Any) -> Any:
        """The default of `validate_every`, which earlier versions recorded as 1."""
        if isinstance(values, dict) and values.get("keep", "best") == "best" and values.get("validate_every") is None:
            return {**values, "validate_every": 1}
        return values

    @field_validator(*limits.TRAINING)
    @classmethod
    def _limited(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        limits.check_limits(value, limits.TRAINING[name], limits.MIN_TRAINING.get(name))
        return value

    def validates(self, epoch: int, epochs: int) -> bool:
        """Whether the held-out images are evaluated after `epoch` of `epochs`, counted from 1."""
        return self.validate_every is not None and (epoch % self.validate_every == 0 or epoch == epochs)

    @model_validator(mode="after")
    def _range(self) -> Self:
        limits.check_lr(self.lr, self.optimiser)
        low, high = self.scale
        if low > high:
            raise ValueError(f"scale must be (smallest, largest), not ({low:g}, {high:g})")
        if self.held_out == 0 and self.validate_every is not None:
            raise ValueError("without held-out images nothing can be validated: set keep to last, or held_out above 0")
        if self.augmentation == "random_resized_crop" and self.focus:
            raise ValueError("focus needs augmentation resize_and_crop: a random resized crop cannot be focused")
        return self


class Task(FrozenModel):
    """A complete training run."""

    name: str = "task"
    seed: Annotated[int, Field(ge=0, le=defaults.MAX_SEED)] = 0
    recipe: Recipe = "paper"
    """Where values come from that the sections `network` and `training` do not give: `site`, the default for site data,
    or `paper`; see `rcil.tasks.recipes`."""
    data: DataSection
    protocol: ProtocolSection
    network: NetworkSection = NetworkSection()
    method: TaskMethodSection = TaskMethodSection()
    training: TrainingSection = TrainingSection()

    @model_validator(mode="before")
    @classmethod
    def _with_recipe(cls, document: Any) -> Any:
        return with_recipe(document) if isinstance(document, dict) else document

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.training.channels_last and self.network.width < 8:
            # torch 2.13 writes past its memory in strided 1x1 convs of four channels in this layout.
            raise ValueError("training.channels_last needs a network.width of at least 8")
        for rates in self.method.lr.values():
            limits.check_lr(rates, self.training.optimiser)
        check_norm_precision(self.network.norm, self.training.precision)
        check_augmentation(self.training.augmentation, self.data.scale)
        if self.training.memory and self.protocol.by_domain:
            raise ValueError("training.memory keeps images of earlier classes, which domain protocols do not have")
        return self

    @property
    def own_training(self) -> TrainingSection:
        """The schedule with the learning rates of the task's own method."""
        own = self.method.lr.get(self.method.name)
        return self.training if own is None else self.training.model_copy(update={"lr": own})
