from pathlib import Path

import cv2
import numpy as np
import pytest

from rcil_serve.live.pictures import Pictures
from rcil_serve.runtime.planes import Planes
from rcil_serve.runtime.predictor import Layout, Predictor
from rcil_serve.runtime.zones import parse_zone
from rcil_serve.watch.alarms import Limits
from rcil_serve.watch.events import EventLog
from rcil_serve.watch.meters import Measure
from rcil_serve.watch.promotion import Promotion
from rcil_serve.watch.rules import parse_rule
from rcil_serve.watch.shadow import Shadow
from rcil_serve.watch.trial import TrialRule
from rcil_serve.watch.watcher import WatchSettings

OLD, GOOD, FORGETFUL = {100: 1, 150: 2}, {100: 1, 150: 2, 200: 3}, {100: 1, 150: 3, 200: 3}


class Nowhere(Promotion):
    def apply(self, model, sha256):
        """Nothing on this machine changes."""


def shadow_of(kit, current, step, table, frames):
    rule = TrialRule(frames=frames)
    return Shadow(Path("new.onnx"), kit.model(step, table), current, rule, Nowhere(), EventLog(None))


def values(bench, measure):
    return {reading.name: reading.value for reading in bench.watcher.status().readings if reading.measure is measure}


def test_a_forgotten_class_raises_one_alarm_that_clears_when_it_is_over(kit):
    only_agreement = Limits(max_drift=float("inf"), max_flicker=float("inf"), patience=2)
    bench = kit.Bench(kit.model(1, FORGETFUL), kit.model(0, OLD), limits=only_agreement)
    bench.show(kit.scene(100, 0, 0), 5)
    assert bench.events == []
    bench.show(kit.scene(100, 150, 0), 2)
    assert values(bench, Measure.AGREEMENT) == {"background": 1.0, "a": 1.0, "b": 0.0}
    assert [(event.kind, event.facts["measure"], event.facts["class"]) for event in bench.events] == [
        ("raised", "agreement", "b")
    ]
    assert bench.events[0].facts["value"] == 0.0 and bench.events[0].facts["threshold"] == 0.9
    assert bench.events[0].time == pytest.approx(0.6), "the second bad judgement"
    bench.current.backend.lut[150] = 2
    bench.show(kit.scene(100, 150, 0), 150)
    assert bench.kinds() == ["raised", "cleared"]
    assert values(bench, Measure.AGREEMENT)["b"] == 1.0, "the window has moved on"
    assert [text for _, text in bench.history.timeline.marks] == ["alarm"]


def test_equal_models_agree_on_scaled_frames_that_are_not_rgb(kit):
    """All models get the frame as it was decoded: RGB of the scaled planes differs from the scaled RGB."""
    table, layout = {red: red // 4 % 3 for red in range(256)}, Layout(size=(24, 40))
    small = [Predictor(kit.Table(step, table), layout) for step in (1, 0, 2)]
    shadow = Shadow(Path("new.onnx"), small[2], small[0], TrialRule(frames=100), Nowhere(), EventLog(None))
    bench = kit.Bench(small[0], small[1], shadow)
    noise = np.random.default_rng(0).integers(16, 236, (96, 160), np.uint8)
    bench.show(Planes(noise, noise[:48, :80], noise[48:, 80:]), 3)
    assert values(bench, Measure.AGREEMENT) == {"background": 1.0, "a": 1.0, "b": 1.0}
    assert set(bench.watcher.status().shadow_agreement.values()) == {1.0}


def test_the_previous_step_runs_on_every_nth_frame_only(kit):
    bench = kit.Bench(kit.model(1, GOOD), kit.model(0, OLD), settings=WatchSettings(every=4, window=10.0))
    bench.show(kit.scene(100, 150), 10)
    status = bench.watcher.status()
    assert (bench.current.backend.runs, bench.previous.backend.runs) == (10, 3)
    assert (status.frames, status.compared) == (10, 3)


def test_without_a_previous_step_drift_and_flicker_remain(kit):
    bench = kit.Bench(kit.model(1, GOOD), settings=WatchSettings(every=1, window=1.0))
    bench.show(kit.scene(100, 150, 0, 0), 11)
    bench.show(kit.scene(100, 0, 0, 0), 11)
    assert values(bench, Measure.AGREEMENT) == {}
    drift = values(bench, Measure.DRIFT)
    assert drift["a"] == pytest.approx(0) and drift["b"] == pytest.approx(-1) and drift["new1"] is None
    raised = {(event.facts["measure"], event.facts["class"]) for event in bench.events if event.kind == "raised"}
    assert raised == {("drift", "b")}, "the flip of b was motion in the picture"


def test_flicker_where_nothing_moves(kit):
    bench = kit.Bench(kit.model(1, GOOD))
    for index in range(30):
        bench.current.backend.lut[150] = 2 * (index % 2)
        bench.show(kit.scene(100, 150, 0))
        assert index >= 26 or bench.events == []
    flicker = values(bench, Measure.FLICKER)
    assert flicker["a"] == 0 and flicker["b"] == 1 and flicker["background"] == pytest.approx(0.5)
    raised = [(event.facts["measure"], event.facts["class"]) for event in bench.events]
    assert raised == [("flicker", "background"), ("flicker", "b")]


def test_after_a_promotion_the_new_step_is_watched_against_the_one_it_replaced(kit):
    current = kit.model(1, GOOD)
    shadow = shadow_of(kit, current, 2, GOOD | {250: 4}, frames=5)
    bench = kit.Bench(current, kit.model(0, OLD), shadow)
    picture = kit.scene(100, 150, 200, 250, 0)
    bench.show(picture, 4)
    assert bench.watcher.status().shadow_round == 4
    assert bench.watcher.status().shadow_agreement == {"background": 1.0, "a": 1.0, "b": 1.0, "new1": 1.0}
    assert bench.kinds() == []
    on_their_way = [bench.segment(picture) for _ in range(3)]
    for seen in on_their_way:
        bench.watcher.write(seen)
    assert bench.kinds() == ["promoted"]
    status = bench.watcher.status()
    assert (status.step, status.promotions, status.frames) == (2, 1, 5), "two were seen by the former model"
    assert (bench.previous.backend.closed, current.backend.closed) == (1, 0), "what nobody needs any more is closed"
    bench.show(picture, 2)
    status = bench.watcher.status()
    assert status.frames == 7
    assert values(bench, Measure.AGREEMENT) == {"background": 1.0, "a": 1.0, "b": 1.0, "new1": 1.0}
    assert values(bench, Measure.FLICKER)["new2"] == 0.0, "only masks of one model are compared in time"
    assert bench.history.timeline.marks == [(0.4, "promoted")]
    _, shares = bench.history.timeline.curves()
    assert shares[0].tolist() == [0.4, 0.2, 0.2, 0.2, 0] and shares[-1].tolist() == [0.2] * 5


def test_alarms_about_the_former_model_end_with_it(kit):
    current = kit.model(1, FORGETFUL)
    bench = kit.Bench(current, kit.model(0, OLD), shadow_of(kit, current, 2, FORGETFUL, frames=4))
    bench.show(kit.scene(100, 150, 0), 4)
    assert bench.kinds() == ["raised", "promoted", "cleared"]
    assert bench.watcher.status().active == frozenset()
    assert bench.watcher.status().raised == {(Measure.AGREEMENT, "b"): 1}


def test_a_shadow_that_fails_changes_no_measure(kit):
    def run(with_shadow):
        current = kit.model(1, FORGETFUL)
        shadow = shadow_of(kit, current, 2, GOOD, frames=3) if with_shadow else None
        if shadow is not None:
            shadow.predictor.backend.error = RuntimeError("broken")
        bench = kit.Bench(current, kit.model(0, OLD), shadow)
        bench.show(kit.scene(100, 150, 0), 6)
        return bench

    alone, beside = run(False), run(True)
    assert beside.watcher.status().readings == alone.watcher.status().readings
    assert beside.kinds() == ["shadow_failed", "raised"] and alone.kinds() == ["raised"]


def test_silence_is_an_alarm_until_frames_come_again(kit):
    bench = kit.Bench(kit.model(1, GOOD), limits=Limits(max_silence=5.0, patience=2))
    bench.show(kit.scene(100, 0))
    for bench.now in (4.0, 5.5, 5.6, 9.0):
        bench.watcher.check_silence()
    assert bench.kinds() == ["raised"]
    assert bench.watcher.status().active == {(Measure.SILENCE, "")}, "without waiting for a frame"
    bench.show(kit.scene(100, 0))
    bench.watcher.check_silence()
    bench.watcher.check_silence()
    assert bench.kinds() == ["raised", "cleared"]
    assert bench.events[0].facts["value"] == 5.6 and bench.events[0].facts["threshold"] == 5.0


def test_a_promotion_that_takes_long_is_no_silence(kit):
    current = kit.model(1, GOOD)
    shadow = shadow_of(kit, current, 2, GOOD, frames=1)
    bench = kit.Bench(current, None, shadow, limits=Limits(max_silence=5.0, patience=1))

    class Slow:
        def apply(self, model, sha256):
            bench.now += 40.0
            bench.watcher.check_silence()

    shadow._promotion = Slow()
    bench.show(kit.scene(100, 150, 0))
    bench.watcher.check_silence()
    assert bench.kinds() == ["promoted"]
    bench.now += 5.5
    bench.watcher.check_silence()
    assert bench.kinds() == ["promoted", "raised"], "from the end of it on"


def test_without_a_plot_there_is_no_history(kit):
    bench = kit.Bench(kit.model(1, FORGETFUL), kit.model(0, OLD))
    bench.watcher._history = None
    bench.show(kit.scene(100, 150, 0), 4)
    assert bench.kinds() == ["raised"]


def test_a_rule_is_judged_on_every_frame_and_its_alarm_has_a_picture(kit):
    """The class `a` (row 1) covers the left half of the zone, then nothing."""
    zone = parse_zone("dock=0,0 0.5,0 0.5,1 0,1")
    rule = parse_rule("a covers more than 20 % of dock for 0.5 s", [zone])
    current = kit.model(1, {10: 1})
    bench = kit.Bench(
        current, settings=WatchSettings(every=1000, window=10.0), rules=(rule,), pictures=Pictures((zone,))
    )
    bench.show(kit.scene(10, 0, 0, 0), times=10)
    assert bench.watcher.status().active == {(Measure.COVERAGE, rule.text)}
    bench.show(kit.scene(0, 0, 0, 0), times=10)
    raised, cleared = bench.events
    assert (raised.kind, raised.time, cleared.kind, cleared.time) == ("raised", 0.5, "cleared", 1.5)
    facts = {"measure": "coverage", "class": "a", "zone": "dock", "rule": rule.text, "threshold": 0.2}
    assert raised.facts | facts == raised.facts and raised.facts["value"] == pytest.approx(0.5, abs=0.03)
    picture = cv2.imdecode(np.frombuffer(raised.snapshot, np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (32, 80, 3)
    assert [reading.name for reading in bench.watcher.status().readings][-1] == rule.text
    assert bench.watcher.status().raised == {(Measure.COVERAGE, rule.text): 1}
