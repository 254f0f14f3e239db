import pytest

from rcil.core.errors import ConfigError
from rcil.model.metadata import LineageEntry, recorded
from rcil.site.recipe import OPTIONS, careful, derive, fitting_crop, recorded_training
from rcil.site.request import Request, record_request, resumed, step_request
from rcil.site.schedule import with_care
from rcil.tasks.task import Task

ASKED = {"training": {}, "method": {"name": "rcil-plus", "options": {}}}


def task(**sections):
    document = {"data": {"root": "yard"}, "protocol": {"steps": [["ball"]]}, **sections}
    return recorded(Task.model_validate(document))


def trained(described, *configs):
    """Metadata of a checkpoint with these configurations in its lineage."""
    entries = tuple(LineageEntry(step=0, source="something", config=config) for config in configs)
    return described(["background", "ball"]).model_copy(update={"lineage": entries})


def values(metadata, **changes):
    return {key: choice.value for key, choice in derive(metadata, {**ASKED, **changes}).items()}


def test_everything_comes_from_the_last_recorded_training(described):
    first = task(data={"root": "yard", "scale": 0.25})
    last = task(
        data={"root": "yard", "scale": 0.5},
        training={
            "crop": 128,
            "batch": 6,
            "lr": (0.002, 0.0004),
            "classifier_lr": 7,
            "weight_decay": 0.03,
            "focus": 0.7,
            "jitter": 0.1,
            "ema": 0.9,
            "class_weights": "none",
            "scale": (0.75, 1.5),
            "channels_last": True,
            "epochs": (30, 4),
            "warmup": 2,
        },
    )
    found = derive(trained(described, first, last, {}), ASKED)
    expected = {
        "scale": 0.5,
        "training.crop": 128,
        "training.batch": 6,
        "training.optimiser": "adamw",
        "training.lr": 0.0004,
        "training.classifier_lr": 7,
        "training.weight_decay": 0.03,
        "training.focus": 0.7,
        "training.jitter": 0.1,
        "training.ema": 0.9,
        "training.class_weights": "none",
        "training.scale": (0.75, 1.5),
        "training.channels_last": True,
        "training.warmup": 0.5,  # of the step
    }
    assert {key: found[key].value for key in expected} == expected
    assert {found[key].reason for key in expected} == {"from the checkpoint"}


def test_an_earlier_request_is_a_record_too(described, ask):
    before = recorded(ask("training.crop=96", scale=0.5))
    found = values(trained(described, task(), before))
    assert (found["scale"], found["training.crop"], found["training.lr"]) == (0.5, 96, 0.02)


def test_the_paper_recipe_keeps_sgd_and_the_learning_rate_of_later_steps(described):
    found = values(trained(described, task(recipe="paper", training={"lr": (0.02, 0.003)})))
    assert (found["training.optimiser"], found["training.lr"], found["training.classifier_lr"]) == ("sgd", 0.003, 1)
    assert "method.options.gamma" not in found, "the paper's weights are the defaults"


def test_a_method_may_have_its_own_learning_rate(described):
    metadata = trained(described, task(method={"lr": {"mib": (0.1, 0.05)}}))
    assert values(metadata, method={"name": "mib"})["training.lr"] == 0.05
    assert values(metadata)["training.lr"] == 0.001


def test_without_a_record_the_site_recipe(described):
    found = derive(trained(described, {}), ASKED)
    assert (found["training.crop"].value, found["training.optimiser"].value) == (256, "adamw")
    assert found["training.warmup"].value == 0.1
    assert "records no training" in found["training.crop"].reason
    assert found["training.channels_last"].value is False, "faster for EfficientNets only"


@pytest.mark.parametrize(
    "config",
    [
        {"training": {"lr": "high"}},
        {"training": {"lr": [1]}},
        {"training": {}, "scale": "wide"},
        {"training": {}, "method": {"lr": {"rcil-plus": 3}}},
        {"training": {}, "method": {"options": 3}},
        {"training": {}, "scale": 100},
        {"training": {"lr": [0.1, 20]}},
    ],
)
def test_a_damaged_record_is_not_used(described, config):
    assert recorded_training(trained(described, config), "rcil-plus") is None
    assert values(trained(described, config))["training.crop"] == 256


def test_given_values_are_not_derived(described):
    given = {"training": {"crop": 64, "epochs": 5}, "scale": 2.0, "method": {"name": "rcil", "options": {"gamma": 1}}}
    found = values(trained(described, task()), **given)
    assert not {"training.crop", "training.epochs", "training.epoch_images", "scale", "method.options.gamma"} & {*found}
    assert found["training.warmup"] == pytest.approx(0.5), "a tenth of five epochs"
    assert found["method.options.distillation"] == OPTIONS["adamw"]["distillation"]


def test_another_optimiser_gets_its_own_settings(described):
    found = values(trained(described, task(training={"lr": (1e-4, 1e-4)})), training={"optimiser": "sgd"})
    assert (found["training.lr"], found["training.classifier_lr"], found["training.ema"]) == (0.001, 1, 0)
    assert found["training.focus"] == 0.5, "which does not depend on the optimiser"
    paper = trained(described, task(recipe="paper"))
    found = values(paper, training={"optimiser": "adamw"})
    assert (found["training.classifier_lr"], found["training.weight_decay"]) == (5, 0.01)
    assert found["method.options.gamma"] == OPTIONS["adamw"]["gamma"]


def test_options_of_the_same_method(described):
    metadata = trained(described, task(method={"name": "rcil", "options": {"gamma": 0.5, "gone": 1}}))
    assert values(metadata, method={"name": "rcil"})["method.options.gamma"] == 0.5
    assert "method.options.gone" not in values(metadata, method={"name": "rcil"})
    assert values(metadata)["method.options.gamma"] == OPTIONS["adamw"]["gamma"]
    assert "method.options.gamma" not in values(metadata, method={"name": "mib"})


def test_recorded_options_that_cannot_be_used(described):
    metadata = trained(described, task(method={"name": "rcil-plus", "options": {"gamma": "large", "fuse": False}}))
    assert values(metadata)["method.options.gamma"] == OPTIONS["adamw"]["gamma"]
    pseudo = trained(described, task(method={"name": "rcil-plus", "options": {"pseudo": True, "taught": False}}))
    assert values(pseudo)["method.options.pseudo"] is True
    given = {"name": "rcil-plus", "options": {"taught": True}}
    assert "method.options.pseudo" not in values(pseudo, method=given), "the two exclude each other"


@pytest.mark.parametrize(
    "override", ["training=3", "training.optimiser=[1]", "method.options=3", "method.options={1: 2}", "training.lr=[]"]
)
def test_nonsense_is_left_to_the_validation(old_model, site, override):
    with pytest.raises(ConfigError):
        step_request(old_model, site, ["cone"], method="rcil", training={}, overrides=[override])


@pytest.mark.parametrize("name", ["strict", "dft"])
def test_rows_alone_are_trained_faster(described, name):
    found = values(trained(described, task()), method={"name": name})
    assert (found["training.lr"], found["training.classifier_lr"]) == (0.01, 1)
    sgd = values(trained(described, task(recipe="paper")), method={"name": name})
    assert (sgd["training.optimiser"], sgd["training.lr"]) == ("sgd", 0.02)


def test_what_the_method_or_the_user_excludes(described):
    weighted = task(training={"class_weights": "enet"})
    assert values(trained(described, weighted), method={"name": "lwf-mc"})["training.class_weights"] == "none"
    cropped = task(recipe="paper", training={"augmentation": "random_resized_crop"})
    assert values(trained(described, cropped))["training.augmentation"] == "random_resized_crop"
    assert "training.augmentation" not in values(trained(described, cropped), scale=0.5)
    assert "training.augmentation" not in values(trained(described, cropped), training={"focus": 0.5})


@pytest.mark.parametrize(
    ("crop", "sides", "expected"),
    [(256, [360, 360], 256), (256, [256], 256), (256, [255], 240), (256, [180, 180, 20], 176), (256, [20], 32)],
)
def test_crops_fit_into_most_images(crop, sides, expected):
    assert fitting_crop(crop, sides) == expected


def test_the_request_knows_what_was_derived(old_model, site):
    request = step_request(
        old_model,
        site,
        ["cone"],
        method="rcil-plus",
        training={"crop": 64, "lr": None},
        overrides=["training.momentum=0.5"],
        scale=None,
        seed=3,
    )
    assert (request.training.crop, request.training.momentum, request.seed) == (64, 0.5, 3)
    assert request.training.lr == (0.001, 0.001)
    assert "training.lr" in request.derived and "scale" in request.derived
    assert not {"training.crop", "training.momentum", "seed"} & request.derived.keys()
    assert Request.model_validate(request.model_dump(mode="json")) == request


def careful_choices(request, hidden, old):
    return {key: c.value for key, c in careful(request.derived, request.value, "rcil-plus", hidden, old).items()}


def test_images_that_hide_old_classes_call_for_care(old_model, site):
    request = step_request(old_model, site, ["cone"], method="rcil-plus", training={}, overrides=())
    lr, gamma = request.value("training.lr"), request.value("method.options.gamma")
    assert careful_choices(request, hidden=1, old=3) == {} == careful_choices(request, hidden=0, old=0)
    found = careful_choices(request, hidden=2, old=4)
    assert found == {
        "careful": True,
        "training.lr": [pytest.approx(0.3 * rate) for rate in lr],
        "training.backbone_lr": pytest.approx(0.3 * request.value("training.backbone_lr")),
        "method.options.gamma": pytest.approx(10 * gamma),
        "method.options.replay": True,
    }
    assert careful(request.derived, request.value, "mib", 4, 4) == {}


def test_given_values_stay_in_a_careful_step(old_model, site):
    given = {"replay": False, "gamma": 0.5}
    request = step_request(
        old_model, site, ["cone"], method="rcil-plus", options=given, training={"lr": 0.002}, overrides=()
    )
    assert careful_choices(request, 4, 4).keys() == {"careful", "training.backbone_lr"}
    request = with_care(request, 4, 4)
    assert request.value("training.lr") == (0.002, 0.002) and request.careful
    assert request.value("method.options.replay") is False and request.value("method.options.gamma") == 0.5


def test_the_next_class_does_not_inherit_care(described):
    """Otherwise a second careful step would be ten times slower than the first one."""
    usual, slow = task(training={"lr": (0.001, 0.001)}), task(training={"lr": (0.0003, 0.0003)})
    assert values(trained(described, usual, {**slow, "careful": True}))["training.lr"] == 0.001
    assert values(trained(described, usual, {**slow, "careful": None}))["training.lr"] == 0.0003


def test_a_careful_run_is_resumed_with_its_settings(old_model, site, tmp_path):
    request = step_request(old_model, site, ["cone"], method="rcil-plus", training={}, overrides=())
    begun = with_care(request, 4, 4)
    record_request(tmp_path, begun)
    assert resumed(tmp_path, request) == begun
