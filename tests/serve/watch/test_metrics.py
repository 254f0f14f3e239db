import re
import urllib.request

import pytest

from rcil.core.errors import ConfigError
from rcil_serve.stream.frames import Counts
from rcil_serve.watch.meters import Measure, Reading
from rcil_serve.watch.metrics import HOST, WatchCollector, metrics_server
from rcil_serve.watch.watcher import WatchStatus

STANDING = WatchStatus(
    step=2,
    sha256="0" * 64,
    frames=40,
    compared=4,
    readings=(
        Reading(Measure.AGREEMENT, "a", 0.75),
        Reading(Measure.AGREEMENT, "b", None),
        Reading(Measure.DRIFT, "a", -0.25),
        Reading(Measure.FLICKER, "a", 0.125),
    ),
    active=frozenset({(Measure.AGREEMENT, "a")}),
    raised={(Measure.AGREEMENT, "a"): 3},
    shadow_frames=7,
    shadow_round=2,
    shadow_agreement={"a": 0.5},
    promotions=1,
)


def fetched(port):
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(rcil_\S+) (\S+)$", text, re.MULTILINE)}


def test_metrics_say_how_things_stand_now():
    now = [STANDING]
    with metrics_server(0, WatchCollector(lambda: now[0], Counts(dropped=5, reconnects=6))) as port:
        found = fetched(port)
        now[0] = WatchStatus(step=3, sha256="1" * 64)
        later = fetched(port)
    assert found == {
        'rcil_watch_agreement{class="a"}': 0.75,
        'rcil_watch_drift{class="a"}': -0.25,
        'rcil_watch_flicker{class="a"}': 0.125,
        'rcil_watch_shadow_agreement{class="a"}': 0.5,
        'rcil_watch_alarm{class="a",measure="agreement"}': 1,
        'rcil_watch_alarm{class="b",measure="agreement"}': 0,
        'rcil_watch_alarm{class="a",measure="drift"}': 0,
        'rcil_watch_alarm{class="a",measure="flicker"}': 0,
        'rcil_watch_alarms_total{class="a",measure="agreement"}': 3,
        'rcil_watch_alarms_total{class="b",measure="agreement"}': 0,
        'rcil_watch_alarms_total{class="a",measure="drift"}': 0,
        'rcil_watch_alarms_total{class="a",measure="flicker"}': 0,
        "rcil_watch_frames_total": 40,
        "rcil_watch_compared_frames_total": 4,
        "rcil_watch_shadow_frames_total": 7,
        "rcil_watch_dropped_frames_total": 5,
        "rcil_watch_reconnects_total": 6,
        "rcil_watch_promotions_total": 1,
        "rcil_watch_model_step": 2,
    }
    assert later["rcil_watch_model_step"] == 3
    assert not any("class=" in name for name in later), "no label of the former model stays behind"


def test_a_port_that_is_taken_is_named():
    collector = WatchCollector(lambda: STANDING, Counts())
    with (
        metrics_server(0, collector) as port,
        pytest.raises(ConfigError, match=f"{HOST}:{port}"),
        metrics_server(port, collector),
    ):
        pass
