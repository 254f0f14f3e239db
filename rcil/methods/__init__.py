"""The methods of the paper's tables; each composes loss terms and the start of a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rcil.core.errors import ConfigError, did_you_mean
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.dft import Dft
from rcil.methods.fine_tuning import FineTuning, Joint
from rcil.methods.lwf import Ilt, Lwf, LwfMc
from rcil.methods.mib import Mib
from rcil.methods.plop import Plop
from rcil.methods.rcil import Rcil, RcilOfficial
from rcil.methods.rcil_plus import RcilPlus
from rcil.methods.sdr import Sdr
from rcil.methods.strict import Strict

__all__ = ["METHODS", "LossTerms", "Method", "StepInfo", "check_names", "make_method"]

METHODS: dict[str, type[Method]] = {
    "fine-tuning": FineTuning,
    "joint": Joint,
    "lwf": Lwf,
    "lwf-mc": LwfMc,
    "ilt": Ilt,
    "mib": Mib,
    "sdr": Sdr,
    "plop": Plop,
    "rcil": Rcil,
    "rcil-official": RcilOfficial,
    "rcil-plus": RcilPlus,
    "strict": Strict,
    "dft": Dft,
}


def check_names(names: Iterable[str]) -> None:
    """Raise for the first name that is not a method's, with the closest one."""
    for name in names:
        if name not in METHODS:
            raise ConfigError(f"unknown method '{name}'", did_you_mean(name, METHODS))


def make_method(name: str, /, **options: Any) -> Method:
    """A method by name; errors for unknown names and options suggest the closest one."""
    check_names([name])
    kind = METHODS[name]
    known = [f.name for f in fields(kind) if f.init]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) if known else "This method has no options."
            raise ConfigError(f"method '{name}' has no option '{option}'", hint)
    try:
        return TypeAdapter(kind).validate_python(options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"method '{name}': option {where}: {first['msg']}", "Correct the value.") from error
