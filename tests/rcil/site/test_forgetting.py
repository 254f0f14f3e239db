import numpy as np
import pytest
from sites import write_sample

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
    result, shown = look(site, [0, 1, 0], [0, 1, 2])
    assert result.images == 8
    assert [(c.name, c.measured) for c in result.old] == [("background", "labels"), ("ball", "labels")]
    assert all(c.before == c.after and c.drop == 0 and c.agreement is None for c in result.old)
    assert result.old[1].pixels == 8 * 1600
    (cone,) = result.new
    assert cone.name == "cone" and cone.iou == 100 and cone.pixels == 8 * 1600
    assert result.worst.drop == 0
    assert result.groups == 1, "all images look alike"
    assert [caption.partition(":")[0] for _, caption in shown] == ["poor for cone"] * 3


def test_a_forgotten_class_with_labels(look, site):
    result, shown = look(site, [0, 1, 0], [0, 0, 2])
    background, ball = result.old
    assert (ball.before, ball.after, ball.drop) == (100, 0, 100)
    assert background.drop == pytest.approx(WRONGLY_BACKGROUND)
    assert result.worst is ball
    assert any(caption.startswith("largest changes") for _, caption in shown) is False, "three are enough of one scene"


def test_pixels_of_the_new_class_do_not_count_against_the_old_model(look, site):
    """It calls cones balls, which it could not know better; the new model corrects that and loses nothing."""
    result, _ = look(site, [0, 1, 1], [0, 1, 2])
    assert [(c.before, c.drop) for c in result.old] == [(100, 0), (100, 0)]


def test_without_labels_the_old_model_is_the_measure(look, cones):
    result, _ = look(cones, [0, 1, 0], [0, 1, 2], labelled=())
    assert [(c.measured, c.agreement, c.drop, c.before) for c in result.old] == [("agreement", 100, 0, None)] * 2
    forgot, _ = look(cones, [0, 1, 0], [0, 0, 2], labelled=())
    assert forgot.old[1].agreement == 0 and forgot.old[1].drop == 100
    assert forgot.old[0].drop == pytest.approx(WRONGLY_BACKGROUND)
    assert forgot.worst is forgot.old[1]


def test_a_new_class_that_takes_over_an_old_one_is_a_drop(look, cones):
    result, _ = look(cones, [0, 1, 0], [0, 2, 2], labelled=())
    assert result.old[1].drop == 100 and result.old[1].taken == 100
    assert result.old[0].taken == 0
    assert result.new[0].iou == 50


def test_background_is_labelled_only_if_all_others_are(look, site):
    assert look(site, [0, 1, 0], [0, 1, 2], labelled=())[0].old[0].measured == "agreement"


def test_a_few_pixels_are_not_measured(look, cones):
    result, _ = look(cones, [0, 0, 0], [0, 1, 2], labelled=())
    ball = result.old[1]
    assert ball == OldClass("ball", "no", None, None, None, None, 0)
    assert result.old[0].drop > 0, "what was invented is missing from background"
    assert result.worst is None, "background has no name"
    labelled, _ = look(cones, [0, 1, 0], [0, 1, 2], labelled=("ball",))
    assert labelled.old[1].measured == "no", "no such label in these images"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Eight scenes of two frames each: balls and cones at random places."""
    root, generator = tmp_path_factory.mktemp("scenes"), np.random.default_rng(0)
    for index in range(8):
        mask = np.zeros((64, 96), np.uint8)
        for value in (1, 2):
            for _ in range(3):
                y, x = generator.integers(0, 48), generator.integers(0, 72)
                mask[y : y + 16, x : x + 24] = value
        for frame in range(2):
            write_sample(root, "val", f"scene{index}_{frame}", mask, ".png")
    (root / "classes.txt").write_text("background\nball\ncone\n")
    return root


@pytest.fixture
def worse(scenes, painter, described):
    """Compares a perfect model with one that misses balls on the left, in a larger part from image to image."""

    class Worse(painter):
        calls = 0

        def forward(self, x):
            self.calls += 1
            logits = super().forward(x)
            logits[:, 1, :, : 3 * self.calls] = -1
            return logits

    data = read_site(scenes)
    pair = Pair(Model(painter([0, 1, 0], 2), described(OLD)), Model(Worse([0, 1, 2], 3), described(OLD, NEW)), data)
    return compare(pair, data.splits["val"], ("ball",))


def test_intervals_over_scenes(worse):
    result, _ = worse
    assert (result.images, result.groups) == (16, 8)
    _, ball = result.old
    (cone,) = result.new
    assert ball.groups == cone.groups == 8
    low, high = ball.interval
    assert 0 < low < ball.drop < high < 100
    assert cone.iou == 100 and cone.interval == (100, 100)
    assert result.confusion[2] == (0, 0, cone.pixels)


def test_pictures_show_different_scenes(worse):
    _, shown = worse
    scenes = [sample.name.partition("_")[0] for sample, _ in shown]
    assert len(set(scenes)) == len(scenes) == 8
    captions = [caption for _, caption in shown]
    assert [c.split()[0] for c in captions[:6]] == ["poor"] * 4 + ["largest"] * 2
    assert {c.split()[0] for c in captions[6:]} <= {"largest", "good", "typical"}
    most = [float(c.rpartition(": ")[2].partition("%")[0]) for c in captions if c.startswith("largest")]
    assert most == sorted(most, reverse=True) and most[0] > 5


def test_progress(look, site):
    seen = []
    look(site, [0, 1, 0], [0, 1, 2], progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8, 8) and len(seen) == 8


def test_nothing_measured():
    missing = tuple(OldClass(name, "no", None, None, None, None, 0) for name in OLD)
    nothing = Forgetting(3, 1, missing, (NewClass("cone", None, 0),))
    assert nothing.worst is None
    assert nothing.as_document()["largest_drop"] is None
    assert nothing.as_metrics() == {}


def test_the_lineage_gets_drops_and_new_ious(look, site):
    metrics = look(site, [0, 1, 0], [0, 0, 2])[0].as_metrics()
    assert set(metrics) == {"drop background", "drop ball", "iou cone"}
    assert metrics["drop ball"] == 100
