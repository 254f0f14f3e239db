import dataclasses

import pytest

from rcil.core.errors import TrainingError
from rcil.methods.pixels import DENSE_IMAGES
from rcil.site.recipe import PENDING, SCHEDULED
from rcil.site.schedule import (
    MARGIN,
    Amounts,
    Costs,
    applied,
    default_budget,
    fit,
    recipe_document,
    summary,
    wanted_iterations,
    with_crop,
)

AMOUNTS = Amounts(images=200, held_out=40, evaluated=50, share=0.1)
COSTS = Costs(iteration=1.0, looked=0.1, looks=2, fitted=0.0, validated=0.1, compared=0.2)


@pytest.fixture
def open_request(ask):
    """Makes requests whose schedule is not given."""

    def make(*given, **fields):
        keys = [f"training.{name}" for name in (*SCHEDULED, "crop", "warmup") if name not in given]
        training = {"batch": 8, "crop": 64, "workers": 0, "epochs": (1, 1), "warmup": 0.1}
        return ask(training=training, derived=dict.fromkeys(keys, PENDING), **fields)

    return make


@pytest.mark.parametrize(
    ("images", "batch", "share", "expected"),
    [
        (200, 8, 0.1, 500),
        (200, 8, 0.5, 500),
        (200, 16, 0.1, 250),
        (160, 8, 0.01, 800),
        (104, 8, 0.0316, 390),  # 30 views
        (10, 8, 0.1, 250),
        (10, 8, 0.001, 500),
        (5000, 8, 0.1, 800),
    ],
)
def test_iterations_by_images_and_size_of_the_class(images, batch, share, expected):
    assert wanted_iterations(images, batch, share) == pytest.approx(expected, abs=1)


def test_a_generous_budget_is_not_used_up(open_request):
    schedule = fit(open_request(minutes=60), AMOUNTS, COSTS, 3600)
    assert (schedule.iterations, schedule.epochs, schedule.epoch_images) == (500, 4, 125 * 8)
    assert not schedule.limited
    # 50 compared, 2 x 200 looked at, 4 validations of 40 and as many completed masks
    assert schedule.seconds == pytest.approx(50 * 0.2 + 2 * 200 * 0.1 + 5 * 40 * 0.1 + 500)


@pytest.mark.parametrize(("images", "seconds"), [(12, 12 * 0.5), (200, DENSE_IMAGES * 0.5)])
def test_fitting_to_whole_images_is_part_of_the_time(open_request, images, seconds):
    amounts, request = dataclasses.replace(AMOUNTS, images=images), open_request()
    without, fitted = (fit(request, amounts, dataclasses.replace(COSTS, fitted=each), 3600) for each in (0.0, 0.5))
    assert fitted.seconds - without.seconds == pytest.approx(seconds)


@pytest.mark.parametrize("budget", [100, 200, 400])
@pytest.mark.parametrize("spent", [0, 20])
def test_the_whole_command_stays_within_the_budget(open_request, budget, spent):
    costs = dataclasses.replace(COSTS, spent=spent)
    schedule = fit(open_request(minutes=budget / 60), AMOUNTS, costs, budget)
    assert schedule.limited
    assert MARGIN * budget - 4 * costs.iteration < schedule.seconds <= MARGIN * budget
    assert 30 <= schedule.iterations <= schedule.allowed < 500


def test_little_time_is_not_spent_on_whole_images(open_request):
    short, long = (fit(open_request(), AMOUNTS, COSTS, budget) for budget in (100, 1000))
    assert long.effort.finishing_images == 200 and short.effort.finishing_images < 100
    assert (short.effort.epochs, long.effort.epochs) == (2, 4)


def test_too_short_is_an_error_with_a_remedy_that_works(open_request):
    costs = dataclasses.replace(COSTS, iteration=6.0)
    with pytest.raises(TrainingError, match="2 min are too short") as caught:
        fit(open_request(minutes=2), AMOUNTS, costs, 120)
    assert "a --crop below 64" in caught.value.hint
    minutes = int(caught.value.hint.split("--minutes ")[1].split()[0])
    assert fit(open_request(minutes=minutes), AMOUNTS, costs, 60 * minutes).iterations >= 30


def test_the_default_budget_is_exceeded_if_necessary(open_request):
    schedule = fit(open_request(), AMOUNTS, dataclasses.replace(COSTS, compared=30.0), 600)
    assert (schedule.iterations, schedule.allowed) == (30, 0), "one epoch"
    assert schedule.seconds > 600


def test_given_numbers_stay(open_request):
    request = open_request("finishing_images", "epoch_images")
    request = request.with_values({"training.finishing_images": 7, "training.epoch_images": 80}, request.derived)
    schedule = fit(request, AMOUNTS, COSTS, 100)
    assert schedule.effort.finishing_images == 7
    assert schedule.epoch_images == 80 and schedule.iterations == 10 * schedule.epochs
    done = applied(request, schedule)
    assert (done.training.finishing_images, done.training.epoch_images) == (7, 80)


def test_a_given_epoch_that_is_too_long(open_request):
    request = open_request("epoch_images", minutes=2)
    request = request.with_values({"training.epoch_images": 8000}, request.derived)
    with pytest.raises(TrainingError, match="an epoch of 8000 images does not fit into 2 min"):
        fit(request, AMOUNTS, COSTS, 120)


def test_given_epochs_are_not_fitted(ask):
    request = ask("training.epochs=3", "training.batch=8")
    assert default_budget(request, "cpu") is None
    schedule = fit(request, AMOUNTS, COSTS, None)
    assert (schedule.epochs, schedule.iterations, schedule.epoch_images) == (3, 75, None)
    assert schedule.seconds == pytest.approx(50 * 0.2 + 40 + (3 + 1) * 40 * 0.1 + 75)
    assert applied(request, schedule) == request


def test_budgets(open_request):
    assert default_budget(open_request(), "cpu") == 600
    assert default_budget(open_request(), "cuda") is None
    assert default_budget(open_request(minutes=3), "cuda") == 180


def test_the_schedule_goes_into_the_request(open_request):
    request = with_crop(open_request(), 48)
    done = applied(request, fit(request, AMOUNTS, COSTS, None))
    training = done.training
    assert (training.crop, training.epochs, training.epoch_images) == (48, (4, 4), 1000)
    assert training.warmup == pytest.approx(0.4), "a tenth of four epochs"
    assert done.derived["training.epochs"] == "500 iterations, enough for these images"
    limited = applied(request, fit(request, AMOUNTS, COSTS, 100))
    assert "limited by the time budget" in limited.derived["training.epoch_images"]
    assert PENDING not in {v for k, v in done.derived.items() if k != "training.warmup"}


def test_one_line_says_what_and_why(open_request):
    request = open_request()

    def line(budget, costs=COSTS):
        schedule = fit(request, AMOUNTS, costs, budget)
        return summary(applied(request, schedule), schedule, budget)

    assert line(1200) == (
        "scale 1, batch 8, sgd with lr 0.001 (given); crop 64 (chosen before the training); "
        "500 iterations, about 9 min 30 s (--minutes 20 allows 1010); change with --minutes"
    )
    assert line(600).endswith(
        "468 iterations, about 8 min 58 s, all that --minutes 10 allows; 500 are better, with a larger --minutes"
    )
    assert "32 iterations, about 10 min 46 s, the least" in line(600, dataclasses.replace(COSTS, iteration=18.0))
    assert line(None, None).endswith("; 500 iterations")


def test_every_value_has_a_reason(open_request):
    document = recipe_document(open_request(minutes=5))
    assert document["training.crop"] == {"value": 64, "reason": PENDING}
    assert document["minutes"] == {"value": 5, "reason": "given"}
    assert document["training.batch"]["reason"] == "default"
    assert document["training.workers"] == {"value": 0, "reason": "given"}
