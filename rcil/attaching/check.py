"""`rcil attach --check`: everything that RC does to a network, on random weights and images, as one row of a table."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rcil.attaching.model import attach_model
from rcil.checkpoint.file import load, save
from rcil.core.errors import ConfigError, RcilError, first_line
from rcil.core.log import Notify
from rcil.methods import StepInfo, make_method
from rcil.model.metadata import class_table
from rcil.nn import Network, fold
from rcil.nn.attached.attach import default_names
from rcil.nn.attached.builders import build_module, with_classes
from rcil.nn.attached.network import AttachedNetwork, pad_to
from rcil.nn.attached.outputs import pick
from rcil.nn.attached.requirements import TOLERANCE
from rcil.nn.attached.restore import restore
from rcil.nn.fold import count_parameters

FP64, FP32 = 1e-10, 1e-4
"""Largest error of folding, as a share of the range of the logits."""
STEPS, ITERATIONS, LR = 2, 2, 1e-3
SIDES = (128, 256, 512)
"""Sides of the images; the first that the network accepts."""


@dataclass
class NetworkCheck:
    """What was found and measured; a problem makes the check fail."""

    network: str
    pairs: int = 0
    """Convs with a norm that folds into them."""
    branches: int = 0
    """Convs that get a second branch."""
    parameters: int = 0
    fold64: float = float("nan")
    """Not a number if the network runs in fp32 only."""
    fold32: float = float("nan")
    certificate: str = "not run"
    route: str = "not run"
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.problems

    def row(self) -> dict[str, str]:
        """The row of the table in docs/networks.md."""
        return {
            "network": self.network,
            "pairs": f"{self.pairs}, {self.branches} with branches",
            "parameters": f"{self.parameters / 1e6:.2f} M",
            "fold error fp64 / fp32": f"{_shown(self.fold64)} / {_shown(self.fold32)}",
            "certificate": self.certificate,
            "export": self.route,
        }


def _shown(error: float) -> str:
    return "not run" if isnan(error) else f"{error:.0e}"


def check_network(
    factory: str,
    args: Mapping[str, Any],
    *,
    classifier: Sequence[str] | None = None,
    maps: Sequence[str] | None = None,
    export: bool = True,
    say: Notify,
) -> NetworkCheck:
    """Attach a network, train two steps, fold it in both forms, store it, export it and read its certificate.

    Args:
        factory: Import path of the builder.
        args: Its arguments.
        classifier: Names of the convs with one row per class; found by default.
        maps: Names of the modules whose maps are distilled; found by default.
        export: Whether to export too.
        say: Receives a line at every stage.
    """
    torch.manual_seed(0)
    say("attaching")
    built = _built(factory, args)
    names = default_names(built, classifier)
    model = attach_model(built, args, factory=factory, classes=names, classifier=classifier, maps=maps)
    network = model.network
    assert isinstance(network, AttachedNetwork)
    side = _side(network)
    found = NetworkCheck(
        network.arch.backbone,
        pairs=sum(unit.norm is not None for unit in network.arch.units),
        branches=sum(unit.rc for unit in network.arch.units),
        parameters=count_parameters(network),
    )
    say("two steps of training")
    student = _trained(network, side)
    if not all(bool(torch.isfinite(value).all()) for value in student.state_dict().values()):
        found.problems.append(f"two steps of training on noise at a rate of {LR} gave weights that are not finite")
        return found
    say("folding")
    _check_folding(student, side, found)
    with tempfile.TemporaryDirectory(prefix="rcil-attach-") as folder:
        path = Path(folder) / "model.safetensors"
        steps = [list(names) for names in student.rows.steps]
        save(path, student, model.metadata.model_copy(update={"classes": class_table(steps), "step": STEPS}))
        if not _same(load(path)[0], student, side, found.problems, "loading the checkpoint"):
            return found
        if export:
            say("exporting")
            _export(path, network.arch.package, side, found)
    return found


def _built(factory: str, args: Mapping[str, Any]) -> torch.nn.Module:
    from rcil.core.allowed_imports import allow_imports

    allow_imports([factory.partition(":")[0].partition(".")[0]])
    net = build_module(factory, args)
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d) and part.affine and part.running_mean is not None:
            torch.nn.init.normal_(part.running_mean, std=0.1)  # statistics of 0 and 1 would hide mistakes
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)  # type: ignore[arg-type]
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
    return net


@torch.no_grad()
def _side(network: Network) -> int:
    """The first side that the network accepts."""
    for side in SIDES:
        try:
            network(_image(side))
        except ConfigError:
            if side == SIDES[-1]:
                raise
        else:
            return side
    raise AssertionError


def _trained(network: Network, side: int) -> AttachedNetwork:
    """The network after two steps of a few iterations with RCIL's losses on noise."""
    method = make_method("rcil")
    generator = torch.Generator().manual_seed(0)
    for step in range(1, STEPS + 1):
        teacher = fold(network)[0].eval()
        old = len(network.names)
        student = method.begin(network, [f"new_{step}"])
        method.set_training(student)
        optimiser = torch.optim.SGD([p for p in student.parameters() if p.requires_grad], lr=LR)
        for _ in range(ITERATIONS):
            images = torch.randn(2, 3, side, side, generator=generator)
            labels = torch.zeros(2, side, side, dtype=torch.long)
            labels[:, : side // 2] = old
            with torch.no_grad():
                before = teacher(images, maps=method.maps)
            optimiser.zero_grad()
            method.terms(student(images, maps=method.maps), before, labels, StepInfo(old, 1)).total.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        network = student.eval()
    assert isinstance(network, AttachedNetwork)
    return network


@torch.no_grad()
def _check_folding(student: AttachedNetwork, side: int, found: NetworkCheck) -> None:
    """Both folded forms against both branches, in both precisions; the state dict in the user's own builder."""
    image = _image(side)
    arch = student.arch
    plain = restore(student)
    grown = with_classes(arch, len(student.names))
    if grown is None:
        found.problems.append("no argument of the factory states the number of classes")
    else:
        fresh = build_module(arch.factory, grown)
        try:
            fresh.load_state_dict(plain.state_dict())
        except RuntimeError as error:
            found.problems.append(f"the folded module does not load into its builder: {first_line(error)}")
        if type(fresh) is not type(plain):
            found.problems.append(f"the folded module is a {type(plain).__name__}, not a {type(fresh).__name__}")
    found.fold32 = _fold_error(student, plain, image)
    measured = [(found.fold32, FP32, "fp32")]
    try:
        found.fold64 = _fold_error(student.double(), restore(student), image.double())
        measured.append((found.fold64, FP64, "fp64"))
    except ConfigError:  # some networks make tensors in fp32 themselves
        found.fold64 = float("nan")
    student.float()
    for change, limit, name in measured:
        if not change <= limit:
            found.problems.append(f"folding changes the logits by {change:.1e} of their range in {name}")


def _fold_error(student: AttachedNetwork, plain: torch.nn.Module, image: Tensor) -> float:
    """The error of both folded forms."""
    both, absorbed = student(image), fold(student)[0](image)
    small = pick(plain(pad_to(image, student.arch.multiple)), student.arch.output, len(student.names))
    return _worst(both, absorbed, student._full(small, image))


def _worst(expected: Tensor, *others: Tensor) -> float:
    span = (expected.max() - expected.min()).clamp(min=1e-30)
    return float(torch.stack([(expected - other).abs().max() / span for other in others]).max())


def _image(side: int) -> Tensor:
    return torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def _same(a: Network, b: Network, side: int, problems: list[str], what: str) -> bool:
    image = _image(side)
    error = _worst(a(image), b(image))
    if not error <= TOLERANCE:
        problems.append(f"{what} changes the logits by {error:.1e} of their range")
    return error <= TOLERANCE


def _export(path: Path, package: str, side: int, found: NetworkCheck) -> None:
    """Export in a process of its own, because the exporter is another package; note its route and certificate."""
    output = path.with_name("exported")
    command = [sys.executable, "-m", "rcil_export", "export", str(path), "-o", str(output), "--target", "onnx"]
    options = ["--size", f"{side}x{side}", "--rounds", "0", "--allow-import", package, "--json", "--quiet"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout[max(0, done.stdout.rfind("\n{\n")) :])  # after what the network prints
    except ValueError:
        found.problems.append(f"the export failed: {first_line(RcilError(done.stderr))}")
        found.certificate = found.route = "failed"
        return
    results = {result["key"]: result for result in report["results"]}
    items = results.get("certificate", {}).get("items", [])
    proved = [item for item in items if item["passed"]]
    found.certificate = f"{len(proved)} of {len(items)} proved" if report["ok"] else "failed"
    found.route = str(report["facts"].get("route", "?"))
    if not report["ok"]:
        wrong = [item for result in report["results"] for item in result["items"] if item["passed"] is False]
        found.problems += [f"{item['title']}: {item['measured']}" for item in wrong]
