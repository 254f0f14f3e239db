"""The tables: the paper's comparison and ablations on data that two cores can process, and additions to the paper.

Options are chosen on held-out images (the tables `*-weights` and `*-beyond`), never on test images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from tools.results.cells import Changes, Look, Table
from tools.results.data import SEQUENCES, SITE_DOMAINS
from tools.results.full_size import full_size
from tools.results.settings import (
    ALL_AT_ONCE,
    BASES,
    GAMMAS,
    LAMBDAS,
    TWO_STEPS,
    options_of,
    orders_of,
    steps_of,
    weights_to_try,
)

METHODS = {
    "fine-tuning": "fine-tuning",
    "LwF": "lwf",
    "LwF-MC": "lwf-mc",
    "ILT": "ilt",
    "MiB": "mib",
    "SDR": "sdr",
    "PLOP": "plop",
    "RCIL": "rcil",
    "RCIL+": "rcil-plus",
}
SHOWN = (*METHODS, "joint")
SEEDS = (0, 1, 2)
DATA_TITLES = {"camvid": "CamVid", "site": "Generated site"}


def row(name: str, options: Mapping[str, Any], **changes: Any) -> Changes:
    """A method and its options."""
    return {"method.name": name, "method.options": dict(options), **changes}


def all_methods(data: str, per_step: int = 1) -> dict[str, Changes]:
    """The rows of the paper's tables, RCIL+, and joint training."""
    rows = {title: row(name, options_of(data, name, per_step)) for title, name in METHODS.items()}
    return {**rows, "joint": row("joint", {}, **{"training.epochs": [ALL_AT_ONCE[data], 1]})}


def in_orders(data: str, per_step: int, setting: str) -> dict[str, Changes]:
    """Three replicas: on CamVid each has its own class order and seed, on the site only its own seed."""
    classes, orders = orders_of(data)
    names = {f"order {name}": later for name, later in orders.items()}
    if data == "site":
        names = {f"seed {seed}": orders["a"] for seed in SEEDS}
    return {
        name: {"seed": seed, "protocol.steps": steps_of(classes, later, per_step), "protocol.setting": setting}
        for seed, (name, later) in enumerate(names.items())
    }


def base_of(data: str, per_step: int) -> dict[str, Any]:
    """The task that all cells share. A step with five new classes has more epochs than one with a single class."""
    training = BASES[data]["training"]
    epochs = training["epochs"] if per_step == 1 else [training["epochs"][0], TWO_STEPS[data]]
    return {**BASES[data], "training": {**training, "epochs": epochs}}


def comparisons() -> Iterator[Table]:
    """Compare all methods over two and six steps, overlapped and disjoint."""
    for data, per_step, setting in product(("camvid", "site"), (1, 5), ("overlapped", "disjoint")):
        first = 6 if data == "camvid" else 5
        steps = "six steps" if per_step == 1 else "two steps"
        yield Table(
            name=f"{data}-{first}-{per_step}-{setting}",
            title=f"{DATA_TITLES[data]}, {first}-{per_step}, {setting}",
            about=f"{first} classes first, then {per_step} at a time, over {steps}: all methods of the paper's tables.",
            data=data,
            base=base_of(data, per_step),
            rows=all_methods(data, per_step),
            replicas=in_orders(data, per_step, setting),
            pictures=SHOWN if setting == "overlapped" and per_step == 1 else (),
        )


def by_domain() -> Iterator[Table]:
    """Compare all methods on steps that add scenes and no classes."""
    domains = {"camvid": ("camvid-sequences", SEQUENCES), "site": ("site-domains", SITE_DOMAINS)}
    for data, (folder, names) in domains.items():
        yield Table(
            name=f"{data}-domains",
            title=f"{DATA_TITLES[data]}, by domain",
            about=f"Every step has all classes, on its own images: {', then '.join(names)}.",
            data=folder,
            base=BASES[data],
            rows=all_methods(data),
            replicas={f"seed {s}": {"seed": s, "protocol.domain_steps": [[name] for name in names]} for s in SEEDS},
        )


def weights() -> Iterator[Table]:
    """Choose weights for a small network and short steps on the held-out images."""
    for data, per_step in product(("camvid", "site"), (5, 1)):
        replicas = in_orders(data, per_step, "overlapped")
        only = next(iter(replicas))
        yield Table(
            name=f"{data}-weights-{per_step}",
            title=f"{DATA_TITLES[data]}: weights, {'one class' if per_step == 1 else 'five classes'} a step",
            about="The papers' weights are for ResNet-101 and thousands of iterations. Here the weights of every "
            "method were chosen on the held-out images of one run.",
            data=data,
            base=base_of(data, per_step),
            rows={title: row(name, options) for title, (name, options) in weights_to_try().items()},
            replicas={only: replicas[only]},
            look="ablation",
            held_out=True,
        )


ABLATIONS: Mapping[str, tuple[str, str, Look]] = {
    "rc-parts": ("Parts of RC", "One part is added at a time, without cube distillation, as in the paper.", "ablation"),
    "distillation": ("RC, S-KD and C-KD", "The paper's main ablation.", "ablation"),
    "pooling": ("Kinds of pooling", "How the spatial term pools its maps; the channel term is off.", "ablation"),
    "windows": ("Pooling windows", "Sizes of the windows over which the spatial term pools.", "ablation"),
    "maps": ("Distilled maps", "Which maps the cube distillation compares.", "ablation"),
    "lambda-gamma": (
        "Weights of both distillations",
        "lambda weights MiB's distillation, gamma the cube distillation.",
        "grid",
    ),
    "old-branch-weight": (
        "Weight of the frozen branch",
        "The weight is fixed instead of random, without cube distillation. A larger weight of the frozen branch "
        "preserves more and learns less.",
        "methods",
    ),
}
"""Title, description and kind of plot of every ablation."""


def ablation_rows() -> dict[str, dict[str, Changes]]:
    """The rows of each of the paper's ablations."""
    rcil, mib = options_of("site", "rcil", 1), options_of("site", "mib", 1)
    off = {"spatial": False, "channel": False}
    return {
        "rc-parts": {
            "one branch": row("rcil", {**rcil, **off, "parallel": False}),
            "parallel": row("rcil", {**rcil, **off, "merge": False, "freeze": False, "mix": "fixed"}),
            "+ merge": row("rcil", {**rcil, **off, "freeze": False, "mix": "fixed"}),
            "+ frozen": row("rcil", {**rcil, **off, "mix": "fixed"}),
            "+ drop-path": row("rcil", {**rcil, **off}),
            "+ function-preserving start": row("rcil", {**rcil, **off, "preserve": True}),
        },
        "distillation": {
            "MiB": row("mib", mib),
            "RC": row("rcil", {**rcil, **off}),
            "RC + S-KD": row("rcil", {**rcil, "channel": False}),
            "RC + C-KD": row("rcil", {**rcil, "spatial": False}),
            "S-KD + C-KD, no RC": row("rcil", {**rcil, "parallel": False}),
            "RC + strip pooling + C-KD": row("rcil", {**rcil, "pooling": "strip"}),
            "RC + S-KD + C-KD": row("rcil", rcil),
        },
        "pooling": {
            kind: row("rcil", {**rcil, "channel": False, "pooling": kind})
            for kind in ("none", "global", "max", "strip", "average")
        },
        "windows": {
            ", ".join(map(str, windows)): row("rcil", {**rcil, "windows": windows})
            for windows in ((4,), (12,), (24,), (4, 8, 12), (4, 8, 12, 16, 20, 24))
        },
        "maps": {
            title: row("rcil", {**rcil, "distilled": maps})
            for title, maps in {
                "decoder": ("decoder",),
                "stage 4, decoder": ("stage4", "decoder"),
                "stages 3-4, decoder": ("stage3", "stage4", "decoder"),
                "stages 1-4": ("stage1", "stage2", "stage3", "stage4"),
                "stages 1-4, decoder": ("stage1", "stage2", "stage3", "stage4", "decoder"),
                "all and logits": ("stage1", "stage2", "stage3", "stage4", "decoder", "logits"),
            }.items()
        },
        "lambda-gamma": {
            f"lambda {a:g}, gamma {b:g}": row("rcil", {**rcil, "distillation": a, "gamma": b})
            for a, b in (*product(LAMBDAS, GAMMAS), (100.0, 0.01))  # the last pair is the paper's
        },
        "old-branch-weight": {
            f"{100 * share:g} % old branch": row("rcil", {**rcil, **off, "mix": "fixed", "old_weight": share})
            for share in (0.9995, 0.75, 0.5, 0.25, 0.0005)
        },
    }


def ablations() -> Iterator[Table]:
    """The paper's ablations on the generated site, one class at a time."""
    for name, rows in ablation_rows().items():
        title, about, look = ABLATIONS[name]
        yield Table(
            name=f"ablation-{name}",
            title=f"{title} (generated site, 5-1)",
            about=about,
            data="site",
            base=BASES["site"],
            rows=rows,
            replicas=in_orders("site", 1, "overlapped"),
            look=look,
        )
    classes, orders = orders_of("site")
    yield Table(
        name="ablation-orders",
        title="Class orders (generated site, 5-1)",
        about="Three class orders with two seeds each show how much the order affects each method.",
        data="site",
        base=BASES["site"],
        rows={name: all_methods("site")[name] for name in ("MiB", "PLOP", "RCIL", "RCIL+")},
        replicas={
            f"order {name}, seed {seed}": {"seed": seed, "protocol.steps": steps_of(classes, later, 1)}
            for (name, later), seed in product(orders.items(), SEEDS[:2])
        },
    )


def beyond() -> Iterator[Table]:
    """RCIL with single additions, and with several."""
    for data in ("camvid", "site"):
        rcil = options_of(data, "rcil", 1)
        chosen = options_of(data, "rcil-plus", 1)
        bare = {**chosen, "taught": False, "refit": False, "balance": "none", "fuse": False}
        fitted = {**bare, "taught": True, "refit": True}
        alone = {
            "function-preserving start": row("rcil-plus", {**bare, "preserve": True}),
            "pseudo-labels": row("rcil-plus", {**bare, "pseudo": True}),
            "sigmoids": row("rcil-plus", {**bare, "sigmoid": True}),
            "learnable eta": row("rcil-plus", {**bare, "mix": "learnable"}),
            "frozen rows": row("rcil-plus", {**bare, "freeze_rows": True}),
            "fitted new rows": row("rcil-plus", {**bare, "fit_rows": True}),
            "settled norms": row("rcil", rcil, **{"training.settle": 10}),
        }
        rows = {
            "RCIL": row("rcil", rcil),
            **(alone if data == "site" else {}),
            "fused weights": row("rcil-plus", {**bare, "fuse": True}),
            "taught labels": row("rcil-plus", {**bare, "taught": True}),
            "refitted rows": row("rcil-plus", {**bare, "refit": True}),
            "taught + refitted": row("rcil-plus", fitted),
            "taught + refitted + balanced": row("rcil-plus", {**fitted, "balance": "new"}),
            "taught + refitted + balanced + fused": row("rcil-plus", {**fitted, "balance": "new", "fuse": True}),
            "RCIL+ without branches": row("rcil-plus", {**chosen, "parallel": False}),
            "RCIL+ with a memory of 5": row("rcil-plus", chosen, **{"training.memory": 5}),
            "joint": all_methods(data)["joint"],
            "joint and refitted rows": {**all_methods(data)["joint"], "method.options": {"refit": True}},
        }
        first = 6 if data == "camvid" else 5
        yield Table(
            name=f"{data}-beyond",
            title=f"{DATA_TITLES[data]}, {first}-1, overlapped: beyond the paper",
            about="Additions that exist only during training cost nothing at inference. RCIL+ was chosen by the last "
            "column.",
            data=data,
            base=BASES[data],
            rows=rows,
            replicas=in_orders(data, 1, "overlapped"),
            look="ablation",
            held_out=True,
        )


TABLES: Mapping[str, Table] = {
    table.name: table for table in (*weights(), *beyond(), *comparisons(), *by_domain(), *ablations(), *full_size())
}
