"""How Triton runs a model: instances, threads, the TensorRT accelerator. No file is read or written here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from rcil.core.errors import ConfigError
from rcil_export.graph.interface import Precision
from rcil_export.triton.step_file import Backend

Kind = Literal["auto", "cpu", "gpu"]
Accelerator = Literal["none", "tensorrt"]
MODES: dict[Precision, str] = {"fp32": "FP32", "fp16": "FP16", "int8": "INT8"}
"""The mode in which ONNX Runtime passes a graph of a precision to TensorRT; there is none for bf16."""


@dataclass(frozen=True)
class Serving:
    """The settings of `config.pbtxt` for running the model; Triton chooses what is left out."""

    instances: int | None = None
    """Copies of the model that run at once: on each GPU, or in total on the CPU."""
    kind: Kind = "auto"
    """Where they run; `auto`: on GPUs if the server has any."""
    gpus: tuple[int, ...] = ()
    """Numbers of the server's GPUs; empty: all of them."""
    threads: int | None = None
    """Threads of ONNX Runtime for the work inside a node, of each instance on the CPU."""
    accelerator: Accelerator = "none"
    """`tensorrt`: ONNX Runtime runs the graph through TensorRT on GPUs."""
    cache: str = ""
    """Folder on the server where TensorRT keeps the engines it builds; without one it builds them at every load."""

    def __post_init__(self) -> None:
        for name, value in (("instances", self.instances), ("threads", self.threads)):
            if value is not None and value < 1:
                raise ConfigError(f"{value} {name} for Triton are too few", "Choose 1 or more.")
        if self.accelerator == "tensorrt" and self.kind == "cpu":
            raise ConfigError("TensorRT accelerates on GPUs, not on a CPU", "Leave --triton-accelerator out.")
        if self.cache and self.accelerator == "none":
            raise ConfigError("an engine cache is for the TensorRT accelerator", "Add --triton-accelerator tensorrt.")
        if re.search(r'["\\\n]', self.cache):
            raise ConfigError(f"'{self.cache}' cannot be the folder of an engine cache", "Name a plain path.")


def parse_devices(text: str) -> tuple[Kind, tuple[int, ...]]:
    """`auto`, `cpu`, `gpu`, or numbers of GPUs such as `0,1`."""
    for kind in get_args(Kind):
        if text == kind:
            return kind, ()
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,3}", word) for word in words) or len(set(words)) != len(words):
        raise ConfigError(
            f"'{text}' is not a device of a Triton server", "Choose auto, cpu, gpu, or numbers of GPUs such as 0,1."
        )
    return "gpu", tuple(int(word) for word in words)


def check_serving(serving: Serving, backend: Backend, precision: Precision) -> None:
    """Raise for settings that the backend or the precision does not support."""
    if backend == "tensorrt":
        for option, given in (
            ("--triton-threads", serving.threads is not None),
            ("--triton-accelerator", serving.accelerator != "none"),
            ("--triton-device cpu", serving.kind == "cpu"),
        ):
            if given:
                raise ConfigError(
                    f"{option} is for ONNX models, and the model to publish is a TensorRT engine", "Leave it out."
                )
    if serving.accelerator == "tensorrt" and precision not in MODES:
        raise ConfigError(
            f"ONNX Runtime in Triton cannot hand a {precision} graph to TensorRT",
            f"Export it in {', '.join(MODES)}, or leave --triton-accelerator out.",
        )


def serving_text(serving: Serving, precision: Precision) -> str:
    """The last part of `config.pbtxt`; empty if Triton chooses everything."""
    return _instances(serving) + _threads(serving) + _accelerator(serving, precision)


def _instances(serving: Serving) -> str:
    if serving.instances is None and serving.kind == "auto":
        return ""
    count = f" count: {serving.instances}" if serving.instances is not None else ""
    gpus = f" gpus: [ {', '.join(map(str, serving.gpus))} ]" if serving.gpus else ""
    return f"instance_group [ {{{count} kind: KIND_{serving.kind.upper()}{gpus} }} ]\n"


def _threads(serving: Serving) -> str:
    """Threads for the work inside a node; nodes themselves run one after another."""
    if serving.threads is None:
        return ""
    values = {"intra_op_thread_count": serving.threads, "inter_op_thread_count": 1}
    return "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items()
    )


def _accelerator(serving: Serving, precision: Precision) -> str:
    if serving.accelerator == "none":
        return ""
    values = {"precision_mode": MODES[precision]}
    if serving.cache:
        values |= {"trt_engine_cache_enable": "true", "trt_engine_cache_path": serving.cache}
    lines = "".join(f'      parameters {{ key: "{key}" value: "{value}" }}\n' for key, value in values.items())
    return (
        "optimization {\n  execution_accelerators {\n    gpu_execution_accelerator [ {\n"
        f'      name: "tensorrt"\n{lines}    }} ]\n  }}\n}}\n'
    )


def stated_serving(config: str) -> Serving:
    """Read the settings for running the model from a `config.pbtxt`; the inverse of `serving_text`."""

    def found(pattern: str) -> str | None:
        match = re.search(pattern, config, re.MULTILINE)
        return None if match is None else match[1]

    kind = found(r"^instance_group .*kind: KIND_(AUTO|CPU|GPU)")
    instances = found(r"^instance_group .*count: ([0-9]{1,9}) ")
    gpus = found(r"^instance_group .*gpus: \[ ([0-9, ]+) \]")
    threads = found(r'"intra_op_thread_count" value { string_value: "([0-9]{1,9})"')
    return Serving(
        instances=None if instances is None else int(instances),
        kind=next((known for known in get_args(Kind) if known == (kind or "").lower()), "auto"),
        gpus=() if gpus is None else tuple(int(number) for number in gpus.split(", ")),
        threads=None if threads is None else int(threads),
        accelerator="none" if found(r'^ *name: ("tensorrt")$') is None else "tensorrt",
        cache=found(r'"trt_engine_cache_path" value: "([^"\\\n]*)"') or "",
    )
