"""RCIL: representation compensation and pooled cube distillation on MiB's losses, as in the paper and in its code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from rcil.core.errors import ConfigError, did_you_mean
from rcil.losses import PCD_FACTORS, WINDOWS, pcd_maps, pcd_official
from rcil.losses.pooling import PoolKind
from rcil.methods.base import LossTerms, Method, StepInfo, with_branches
from rcil.methods.mib import unbiased_terms
from rcil.model.architecture import RC, STAGES, BranchWeight, DropChance, MixKind, Stages
from rcil.nn import Maps, Network, begin_step
from rcil.nn.network import MapKind, RowStart
from rcil.nn.step import remix

MapName = Literal["stage1", "stage2", "stage3", "stage4", "decoder", "logits"]
NormPlace = Literal["branch", "none", "after"]
SpatialPool = Literal["average", "none", "global", "max", "strip"]
PAPER_MAPS: tuple[MapName, ...] = ("stage1", "stage2", "stage3", "stage4", "decoder")


@dataclass
class Rcil(Method):
    """The paper: UNCE + lambda sqrt(|C|/|N|) UNKD + gamma (L_skd + L_ckd); the options are its ablations."""

    rows: ClassVar[RowStart] = "balanced"
    distillation: float = 100.0
    """Weight lambda of UNKD."""
    gamma: float = 0.01
    """Weight of both PCD terms."""
    spatial: bool = True
    """Whether to use S-KD, the PCD term pooled in space."""
    channel: bool = True
    """Whether to use C-KD, the PCD term pooled along channels."""
    pooling: SpatialPool = "average"
    """Pooling of the spatial term."""
    windows: Annotated[Sequence[Annotated[int, Field(ge=1)]], Field(min_length=1)] = WINDOWS
    distilled: Annotated[Sequence[MapName], Field(min_length=1)] = PAPER_MAPS
    """Which maps PCD compares."""
    unbiased: bool = True
    """Use MiB's losses and its start of new rows; otherwise plain cross entropy and random rows, as in fine-tuning."""
    parallel: bool = True
    """Use two branches; without them PCD trains a plain network."""
    merge: bool = True
    """Merge both branches into the old one at the start of a step."""
    freeze: bool = True
    """Freeze the old branch."""
    preserve: bool = False
    """Start the new branch from the merged one, so that a step starts from the old function."""
    mix: MixKind = "drop_path"
    """How branches are weighted: at random during training, by one fixed weight, or by a learned weight per channel."""
    drop: DropChance = 1 / 3
    """Drop-path: the probability that a channel uses only the old branch, and also that it uses only the new branch."""
    old_weight: BranchWeight = 0.5
    """Weight of the old branch if the mix is fixed."""
    norms: NormPlace = "branch"
    """Norms of the RC blocks. `branch`: each branch has its own, until it is merged. `none`: from step 1 on the new
    branch is a conv with bias that has absorbed its norm. `after`: one norm follows the sum of branches (QARepVGG)."""
    stages: Stages = STAGES
    """The stages with RC blocks; the convs of the others have one branch."""
    late: bool = False
    """Train step 0 without branches and add them in step 1, both as copies of the trained convs. A deployed network can
    start like this, and all methods of a comparison share one step 0."""

    @property
    def rc(self) -> RC | None:
        """Two branches in every block, unless they are added late."""
        return self._branches() if self.parallel and not self.late else None

    def _branches(self) -> RC:
        return RC(
            mix=self.mix,
            drop=self.drop,
            old_weight=self.old_weight,
            norm_after=self.norms == "after",
            stages=self.stages,
        )

    def begin(self, model: Network, new_classes: Sequence[str]) -> Network:
        """The transition of the paper or of an ablation; branches are added to a network without them first.

        A network with branches keeps its mix, except for options that differ from their defaults.
        """
        if self.parallel:
            model = with_branches(model, self._branches())
            self._check_form(model.arch.rc)
        elif model.arch.rc is not None:
            raise ConfigError(
                "the option parallel: false needs a network without branches, but this one has two in every block",
                "Leave out the option, or start from a network that was trained without branches.",
            )
        student = begin_step(
            model,
            new_classes,
            rows=self.rows if self.unbiased else "random",
            merge=self.merge,
            freeze=self.freeze,
            preserve=self.preserve,
            absorb=self.norms == "none",
        )
        if self.parallel:
            mixing = {name: getattr(self, name) for name in ("mix", "drop", "old_weight")}
            remix(student, **{name: value for name, value in mixing.items() if value != getattr(Rcil, name)})
        return student

    def _check_form(self, rc: RC | None) -> None:
        """Raise if the network has branches of another form than the options ask for."""
        assert rc is not None
        hint = "Leave out the option, or start from a network without branches, for example its folded form."
        if self.norms == "after" and not rc.norm_after:
            raise ConfigError("norms: after needs branches without norms, but those of this network have norms", hint)
        if self.norms == "none" and rc.norm_after:
            raise ConfigError("norms: none needs norms in the branches, but this network has one after their sum", hint)
        if self.stages not in (STAGES, rc.stages):
            raise ConfigError(
                f"branches were asked for in {', '.join(self.stages)}, but this network has them in "
                f"{', '.join(rc.stages)}",
                hint,
            )

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """MiB's terms and PCD; a domain step has only cross entropy and PCD."""
        teacher = old if self.unbiased and not info.domain else None
        terms = unbiased_terms(new, teacher, labels, info, self.distillation * info.schedule)
        if old is not None:
            terms.update(self.cube_terms(new, old))
        return terms

    def cube_terms(self, new: Maps, old: Maps) -> LossTerms:
        """Pooled cube distillation: gamma times each of the requested terms."""
        terms = LossTerms()
        chosen = choose_maps(new, self.distilled), choose_maps(old, self.distilled)
        for name, wanted in (("spatial", self.spatial), ("channel", self.channel)):
            if wanted:
                kind: PoolKind = self.pooling if name == "spatial" else "channel"
                terms[f"pcd_{name}"] = self.gamma * pcd_maps(*chosen, kind=kind, windows=tuple(self.windows))
        return terms


@dataclass
class RcilOfficial(Method):
    """The published code: weights per benchmark, maps after the activation, the logits among them, padded pooling."""

    maps: ClassVar[MapKind] = "after"
    rows: ClassVar[RowStart] = "background"
    distillation: float = 100.0
    """Weight of UNKD, without the class schedule."""
    benchmark: str = "voc"
    """Benchmark whose PCD factors are used: voc, ade, cityscapes or cityscapes_domain."""

    @property
    def rc(self) -> RC:
        """Two branches in every block, with the drop probability of the published code."""
        return RC(drop=0.33)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.benchmark not in PCD_FACTORS:
            raise ConfigError(f"unknown benchmark '{self.benchmark}'", did_you_mean(self.benchmark, PCD_FACTORS))

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """UNCE + 100 UNKD + sqrt(|C|/|N|) PCD; a domain step has only cross entropy and PCD."""
        if old is None or info.domain:
            terms = unbiased_terms(new, None, labels, info, 0.0)
        else:
            terms = unbiased_terms(new, old, labels, info, self.distillation)
        if old is not None:
            factors = PCD_FACTORS[self.benchmark]
            terms["pcd_spatial"], terms["pcd_channel"] = pcd_official(
                new.distilled(),
                old.distilled(),
                classes=info.classes,
                new_classes=info.new or info.classes,
                spatial_factors=factors.spatial,
                channel_factors=factors.channel,
            )
        return terms


def choose_maps(maps: Maps, names: Sequence[MapName]) -> list[Tensor]:
    """The named maps, in the given order; an attached network may have fewer stages, which are left out."""
    stages = {f"stage{number}": stage for number, stage in enumerate(maps.stages, 1)}
    known = {**stages, "decoder": maps.decoder, "logits": maps.logits_small}
    return [known[name] for name in names if name in known]
