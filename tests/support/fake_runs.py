"""Whole runs of a task on the fake GPU: every step as `rcil train` does it, with files kept in memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from fake_cuda import Watch, fake_cuda
from networks import make_at_step, small_arch
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

from rcil.methods import Method, refit
from rcil.nn.fold import duplicate
from rcil.nn.units.sync import synchronise_norms
from rcil.tasks.load import load_task
from rcil.training import loop, run, state


class Files:
    """Checkpoints and states, which cannot be written without numbers; a loaded network is on the CPU."""

    def __init__(self) -> None:
        self.content: dict[Path, Any] = {}

    def save(self, path: Path, model: Any, metadata: Any) -> None:
        """Keep a copy on the CPU."""
        self.write(path, (duplicate(model, {}).to("cpu"), metadata))

    def load(self, path: Path) -> Any:
        """A copy of what was kept."""
        model, metadata = self.content[path]
        return duplicate(model, {}), metadata

    def write(self, path: Path, document: Any) -> None:
        """Keep a document, under a file that exists."""
        self.content[path] = document
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def read(self, path: Path) -> Any:
        """The document."""
        return self.content[path]

    def header(self, path: Path) -> Any:
        """What `read_header` gives, as far as it is used."""
        return SimpleNamespace(metadata=self.content[path][1])


@contextlib.contextmanager
def files_in_memory() -> Iterator[None]:
    """No file of a run is written or read but the data."""
    files = Files()
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (loop, "save", files.save),
            (loop, "load", files.load),
            (run, "save", files.save),
            (run, "load", files.load),
            (run, "read_header", files.header),
            (state, "write_state", files.write),
            (run, "write_state", files.write),
            (state, "read_state", files.read),
            (run, "read_state", files.read),
            (loop, "check_memory", lambda *args: None),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


class Phases:
    """Which part of a run the waits belong to."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.found: dict[str, list[Counter[str]]] = {}
        self.kernels: dict[str, Counter[str]] = {}

    def of(self, phase: str, function: Any) -> Any:
        """`function`, whose waits are listed under `phase`, one entry for each call."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            before = Counter(self.watch.waits)
            kernels = Counter(self.watch.kernels)
            result = function(*args, **kwargs)
            self.found.setdefault(phase, []).append(self.watch.waits - before)
            self.kernels.setdefault(phase, Counter()).update(self.watch.kernels - kernels)
            return result

        return counted


def run_on_gpu(
    task_file: Path, output: Path, *overrides: str
) -> tuple[dict[str, list[Counter[str]]], dict[str, Counter[str]]]:
    """Run a task on the fake GPU: the waits of every call of every phase, and where each phase computes."""
    task = load_task(task_file, ["training.device=cuda", *overrides])
    with fake_cuda() as watch, files_in_memory(), contextlib.ExitStack() as stack:
        phases = Phases(watch)
        for module, name in (
            (loop, "_learn"),
            (loop, "_update"),
            (loop, "recalibrate_norms"),
            (loop, "evaluate_together"),
            (run, "evaluate_together"),
        ):
            stack.enter_context(mock.patch.object(module, name, phases.of(name.strip("_"), getattr(module, name))))
        make = run.make_method

        def counted_method(*args: Any, **kwargs: Any) -> Method:
            method = make(*args, **kwargs)
            for name in ("start", "prepare", "finish"):
                setattr(method, name, phases.of(name, getattr(method, name)))
            return method

        stack.enter_context(mock.patch.object(run, "make_method", counted_method))
        stack.enter_context(mock.patch.object(refit, "ITERATIONS", 3))  # without numbers it never converges
        run.run_task(task, output)
        return phases.found, phases.kernels


def synchronised_step(step: int, precision: str) -> set[str]:
    """Train one batch of one of two processes; the waits of it."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with fake_cuda() as watch:
            model = synchronise_norms(make_at_step(small_arch(blocks=(1, 1, 1, 1)), step).to("cuda")).train()
            images = torch.randn(2, 3, 64, 64, device="cuda")
            watch.waits.clear()
            with torch.autocast("cuda", loop.DTYPES[precision]):
                maps = model(images, maps="before")
                assert maps.decoder.dtype == loop.DTYPES[precision]
            maps.logits.float().square().mean().backward()
            return set(watch.waits)
    finally:
        dist.destroy_process_group()


def mixed_devices() -> None:
    """A conv whose weights have been left on the CPU."""
    with fake_cuda():
        F.conv2d(torch.zeros(1, 3, 8, 8, device="cuda"), torch.zeros(4, 3, 3, 3))


def mixed_dtypes() -> None:
    """A conv whose weights have another precision than its input."""
    with fake_cuda():
        F.conv2d(torch.zeros(1, 3, 8, 8, device="cuda").half(), torch.zeros(4, 3, 3, 3, device="cuda"))
