import pytest
import torch
from intermediates import intermediates
from networks import at_step, small_arch

from rcil.nn import fold
from rcil_export.precision.int8.risk import risk_table

HARD = "backbone.stages.1.0.conv1"


def test_a_norm_that_pulls_channels_apart_puts_its_layer_first():
    model = at_step(small_arch(), 0)
    for module in model.modules():  # even norms everywhere, so that only the change below matters
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.ones_(module.weight)
            torch.nn.init.ones_(module.running_var)
    block = model.get_submodule(HARD)
    before = {risk.name: risk for risk in risk_table(model)}[f"{HARD}.0"]
    for branch in (block.old, block.new):
        branch.norm.weight.data[3] *= 100
    table = risk_table(model)
    assert table[0].name == f"{HARD}.0"
    assert table[0].spread > 20 * before.spread
    assert table[0].growth == pytest.approx(100 * float(before.growth), rel=0.7)
    assert [risk.score for risk in table] == sorted((risk.score for risk in table), reverse=True)


def test_names_are_those_of_the_graph_and_a_folded_model_has_no_risks():
    model = at_step(small_arch(), 1)
    folded = fold(model)[0]
    names = set(intermediates(folded, torch.zeros(1, 3, 32, 32)))
    assert {risk.name for risk in risk_table(model)} <= names
    assert risk_table(folded) == ()
