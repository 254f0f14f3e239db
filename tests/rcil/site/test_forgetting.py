import pytest

from rcil.data.site import read_site
from rcil.inference import Model
from rcil.site.forgetting import Forgetting, NewClass, OldClass, Pair, compare

OLD, NEW = ("background", "ball"), ("cone",)
BALL = 40 * 40
WRONGLY_BACKGROUND = 100 * BALL / (64 * 96 - BALL)  # the new class's pixels, as many, do not count


@pytest.fixture
def look(painter, described):
    """Compare painters that see (background, ball, cone) as these rows."""

    def run(root, old, new, labelled=("ball",), **options):
        data = read_site(root)
        pair = Pair(Model(painter(old, 2), described(OLD)), Model(painter(new, 3), described(OLD, NEW)), data)
        return compare(pair, data.splits["val"], labelled, **options)

    return run


def test_a_perfect_step_drops_nothing(look, site):
    result, differing = look(site, [0, 1, 0], [0, 1, 2])
    assert result.images == 8
    assert [(c.name, c.measured) for c in result.old] == [("background", "labels"), ("ball", "labels")]
    assert all(c.before == c.after and c.drop == 0 and c.agreement is None for c in result.old)
    assert result.old[1].pixels == 8 * 1600
    (cone,) = result.new
    assert cone.name == "cone" and cone.iou == 100 and cone.pixels == 8 * 1600
    assert result.reason(0) is None
    assert differing == [], "outside the new class nothing differs"


def test_a_forgotten_class_with_labels(look, site):
    result, differing = look(site, [0, 1, 0], [0, 0, 2])
    background, ball = result.old
    assert (ball.before, ball.after, ball.drop) == (100, 0, 100)
    assert background.drop == pytest.approx(WRONGLY_BACKGROUND)
    assert result.worst is ball
    assert result.reason(5) == f"ball dropped {ball.drop:.1f} points, limit 5"
    assert result.reason(100) is None
    assert len(differing) == 8


def test_pixels_of_the_new_class_do_not_count_against_the_old_model(look, site):
    """It calls cones balls, which it could not know better; the new model corrects that and loses nothing."""
    result, _ = look(site, [0, 1, 1], [0, 1, 2])
    assert [(c.before, c.drop) for c in result.old] == [(100, 0), (100, 0)]


def test_without_labels_the_old_model_is_the_measure(look, cones):
    result, _ = look(cones, [0, 1, 0], [0, 1, 2], labelled=())
    assert [(c.measured, c.agreement, c.drop, c.before) for c in result.old] == [("agreement", 100, 0, None)] * 2
    forgot, differing = look(cones, [0, 1, 0], [0, 0, 2], labelled=())
    assert forgot.old[1].agreement == 0 and forgot.old[1].drop == 100
    assert forgot.old[0].drop == pytest.approx(WRONGLY_BACKGROUND)
    assert forgot.reason(5) == "ball dropped 100.0 points, limit 5"
    assert len(differing) == 6


def test_a_new_class_that_takes_over_an_old_one_is_a_drop(look, cones):
    result, _ = look(cones, [0, 1, 0], [0, 2, 2], labelled=())
    assert result.old[1].drop == 100
    assert result.new[0].iou == 50


def test_background_is_labelled_only_if_all_others_are(look, site):
    assert look(site, [0, 1, 0], [0, 1, 2], labelled=())[0].old[0].measured == "agreement"


def test_a_few_pixels_are_not_measured(look, cones):
    result, _ = look(cones, [0, 0, 0], [0, 1, 2], labelled=())
    ball = result.old[1]
    assert ball == OldClass("ball", "no", None, None, None, None, 0)
    assert result.worst is result.old[0], "what was invented is missing from background"
    labelled, _ = look(cones, [0, 1, 0], [0, 1, 2], labelled=("ball",))
    assert labelled.old[1].measured == "no", "no such label in these images"


def test_the_samples_that_differ_most_come_first(look, site, painter, described):
    class Partly(painter):
        """Forgets balls in the brightest share of columns only."""

        def __init__(self, rows, classes):
            super().__init__(rows, classes)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            logits = super().forward(x)
            logits[:, :, :, : 10 * self.calls] = 0  # ties: row 0
            return logits

    data = read_site(site)
    pair = Pair(Model(painter([0, 1, 0], 2), described(OLD)), Model(Partly([0, 1, 2], 3), described(OLD, NEW)), data)
    samples = data.splits["val"][:4]
    _, differing = compare(pair, samples, ("ball",), keep=2)
    assert differing == [samples[3], samples[2]]


def test_progress(look, site):
    seen = []
    look(site, [0, 1, 0], [0, 1, 2], progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8, 8) and len(seen) == 8


def test_nothing_measured_is_no_pass():
    nothing = Forgetting(3, (OldClass("ball", "no", None, None, None, None, 0),), (NewClass("cone", None, 0),))
    assert nothing.worst is None
    assert "no old class could be measured" in nothing.reason(5)
    assert nothing.as_document()["largest_drop"] is None
    assert nothing.as_metrics() == {}


def test_the_lineage_gets_drops_and_new_ious(look, site):
    metrics = look(site, [0, 1, 0], [0, 0, 2])[0].as_metrics()
    assert set(metrics) == {"drop background", "drop ball", "iou cone"}
    assert metrics["drop ball"] == 100
