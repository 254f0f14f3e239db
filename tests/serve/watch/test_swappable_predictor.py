import numpy as np

from rcil_serve.watch.swappable_predictor import SwappablePredictor


def test_images_go_to_the_new_model_and_makers_come_in_order(kit):
    first, second = kit.model(1, {100: 1}), kit.model(2, {100: 2})
    predictor = SwappablePredictor(first)
    assert predictor.layout == first.layout
    picture = kit.scene(100, 0)
    found = predictor.segment_all([picture, picture])
    predictor.replace(second)
    found += predictor.segment_all([picture])
    assert [int(one.mask.max()) for one in found] == [1, 1, 2]
    assert [predictor.maker() for _ in range(3)] == [first, first, second]
    np.testing.assert_array_equal(found[0].mask[:, 20:], 0)


def test_a_model_that_is_replaced_while_it_runs_is_still_the_maker(kit, monkeypatch):
    first, second = kit.model(1, {100: 1}), kit.model(2, {100: 2})
    predictor, run = SwappablePredictor(first), first.backend.run

    def replaced_meanwhile(batch):
        predictor.replace(second)
        return run(batch)

    monkeypatch.setattr(first.backend, "run", replaced_meanwhile)
    found = predictor.segment_all([kit.scene(100)])
    assert int(found[0].mask.max()) == 1 and predictor.maker() is first
