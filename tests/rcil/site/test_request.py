import pytest
import yaml

from rcil.core.errors import ConfigError, TrainingError
from rcil.site.request import check_folder, make_request, record_request, resumed, step_request


def test_overrides_reach_training_and_method(ask):
    request = ask("training.momentum=0.5", "method.options={gamma: 0.1}")
    assert request.training.momentum == 0.5
    assert request.training.batch == 4
    assert request.method.options == {"gamma": 0.1}


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("training.bach=8", "Did you mean 'batch'"),
        ("trainig.batch=8", "Did you mean 'training'"),
        ("scale=0.5", "neither training nor method"),
        ("training.batch=0", "training.batch"),
        ("training.batch", "not an override"),
        ("training={held_out: 0, keep: last}", "training.held_out must be above 0"),
    ],
)
def test_wrong_overrides(ask, override, text):
    with pytest.raises(ConfigError) as caught:
        ask(override)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        *({"scale": 0}, {"scale": 4.5}, {"max_drop": -1}),
        *({"training": {"crop": 100_000}}, {"training": {"lr": 50}}, {"training": {"lr": float("nan")}}),
        *({"training": {"batch": 10**6}}, {"minutes": 0}, {"minutes": float("nan")}, {"minutes": 5}),
    ],
)
def test_impossible_numbers(ask, fields):
    with pytest.raises(ConfigError):
        ask(**fields)


def test_random_resized_crops_need_images_in_their_own_size(ask):
    override = "training.augmentation=random_resized_crop"
    assert ask(override).training.augmentation == "random_resized_crop"
    with pytest.raises(ConfigError, match=r"with a scale of 0\.5"):
        ask(override, scale=0.5)


def test_a_single_number_stands_for_both_of_a_pair(ask):
    request = ask("training.lr=0.5", "training.epochs=[7, 7]")
    assert (request.training.lr, request.training.epochs) == ((0.5, 0.5), (7, 7))
    assert ask("training.lr=1e-3").training.lr == (0.001, 0.001), "text for YAML 1.1"
    with pytest.raises(ConfigError, match=r"lr\.0: nan is not a number"):
        ask("training.lr=nan")


def test_minutes_and_epochs_exclude_each_other(old_model, site):
    with pytest.raises(ConfigError, match="give one of them"):
        step_request(old_model, site, ["cone"], method="mib", training={"epochs": 3}, overrides=(), minutes=5)


class TestResumed:
    """The values that a run has chosen are those that it continues with."""

    @pytest.fixture
    def typed(self, old_model, site):
        def make(**options):
            training = {key: options.pop(key) for key in ("crop", "epochs") if key in options}
            return step_request(old_model, site, ["cone"], method="mib", training=training, overrides=(), **options)

        return make

    @pytest.fixture
    def run(self, typed, tmp_path):
        chosen = {"training.epochs": (4, 4), "training.epoch_images": 24, "training.crop": 48}
        request = typed(minutes=3)
        reasons = {**request.derived, "training.epochs": "12 iterations"}
        request = request.with_values(chosen, reasons)
        record_request(tmp_path, request)
        return request, tmp_path

    def test_the_same_command(self, run, typed):
        request, folder = run
        assert resumed(folder, typed(minutes=3)) == request
        check_folder(folder, resumed(folder, typed(minutes=3)), resume=True)

    def test_the_chosen_value_may_be_given(self, run, typed):
        request, folder = run
        assert resumed(folder, typed(minutes=3, crop=48)) == request

    @pytest.mark.parametrize("options", [{"minutes": 4}, {}, {"minutes": 3, "crop": 64}, {"epochs": 4}])
    def test_another_command(self, run, typed, options):
        _, folder = run
        with pytest.raises(TrainingError, match="another task or request"):
            check_folder(folder, resumed(folder, typed(**options)), resume=True)

    @pytest.mark.parametrize("text", [None, "", "[]", "a: [", "training: 3"])
    def test_no_run_or_a_damaged_one(self, typed, tmp_path, text):
        if text is not None:
            (tmp_path / "add_class.yaml").write_text(text)
        assert resumed(tmp_path, typed()) == typed()


class TestFolder:
    def test_a_free_folder(self, ask, tmp_path):
        check_folder(tmp_path / "out", ask(), resume=False)
        check_folder(tmp_path, ask(), resume=True)

    def test_somebody_elses_folder(self, ask, tmp_path):
        (tmp_path / "notes.txt").touch()
        with pytest.raises(ConfigError, match="is in use"):
            check_folder(tmp_path, ask(), resume=True)

    def test_a_run_needs_resume_and_the_same_request(self, ask, tmp_path):
        record_request(tmp_path, ask())
        assert yaml.safe_load((tmp_path / "add_class.yaml").read_text())["classes"] == ["cone"]
        with pytest.raises(ConfigError, match="--resume"):
            check_folder(tmp_path, ask(), resume=False)
        check_folder(tmp_path, ask(), resume=True)
        with pytest.raises(TrainingError, match="another task or request"):
            check_folder(tmp_path, ask(max_drop=7), resume=True)

    def test_the_model_itself_must_be_the_same(self, ask, tmp_path, old_model):
        copy = tmp_path / "m.safetensors"
        copy.write_bytes(old_model.read_bytes())
        record_request(tmp_path / "out", ask(model=copy))
        copy.write_bytes(old_model.read_bytes() + b" ")
        with pytest.raises(TrainingError, match="another task or request"):
            check_folder(tmp_path / "out", ask(model=copy), resume=True)

    @pytest.mark.parametrize("text", ["[]", "null", "training: 3"])
    def test_a_record_of_something_else(self, ask, tmp_path, text):
        (tmp_path / "add_class.yaml").write_text(text)
        with pytest.raises(TrainingError, match="another task or request"):
            check_folder(tmp_path, ask(), resume=True)

    def test_another_device_may_resume(self, ask, tmp_path):
        record_request(tmp_path, ask("training.device=cuda"))
        check_folder(tmp_path, ask("training.device=cpu"), resume=True)

    def test_a_damaged_record(self, ask, tmp_path):
        (tmp_path / "add_class.yaml").write_text("a: [")
        with pytest.raises(TrainingError, match="cannot read"):
            check_folder(tmp_path, ask(), resume=True)


def test_defaults(tmp_path):
    request = make_request({"model": tmp_path, "data": tmp_path, "classes": ["a"]})
    assert (request.method.name, request.max_drop, request.scale) == ("rcil-plus", 5, 1)
    assert (request.training.epochs, request.training.lr, request.training.batch) == ((30, 30), (0.001, 0.001), 8)
