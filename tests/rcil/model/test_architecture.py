import pytest
from pydantic import ValidationError

from rcil.model.architecture import RC, STAGES, Architecture

FIRST = '{"mix":"drop_path","drop":0.33,"old_weight":0.5,"old":"merged","new":"norm","frozen":true}'
"""RC blocks as files describe them since the first version."""


def test_the_description_of_a_network_of_the_first_version_does_not_change():
    """Its checkpoint would have another hash otherwise."""
    rc = RC.model_validate_json(FIRST)
    assert rc == RC(drop=0.33, old="merged", frozen=True, norm_after=False, stages=STAGES)
    assert rc.model_dump_json() == FIRST
    assert FIRST in Architecture(rc=rc).model_dump_json()


@pytest.mark.parametrize("rc", [RC(norm_after=True), RC(stages=("head",)), RC(norm_after=True, stages=STAGES[2:])])
def test_other_forms_are_described(rc):
    arch = Architecture(rc=rc)
    assert Architecture.model_validate_json(arch.model_dump_json()) == arch
    assert arch.replace(slope=0.1).rc == rc


def test_stages_are_a_set():
    assert RC(stages=("head", "stage2", "head")) == RC(stages=("stage2", "head"))
    assert RC(stages=tuple(reversed(STAGES))) == RC()


@pytest.mark.parametrize("stages", [(), ("stage5",), ("decoder", "stage1")])
def test_impossible_stages(stages):
    with pytest.raises(ValidationError, match="stages"):
        RC(stages=stages)
