import pytest
from servers import Wrapped, write_model

from rcil_serve.http.models import Model, Models
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.runtime.backends import open_backend


@pytest.fixture
def steps(tmp_path):
    return [Model(Wrapped(open_backend(write_model(tmp_path / f"{n}.onnx", n), "cpu", 1))) for n in range(4)]


def test_finds_by_name_and_version(steps):
    models = Models(steps[2], steps[1])
    assert models.versions == ["1", "2"]
    for which, step in (("current", 2), ("2", 2), ("previous", 1), ("1", 1)):
        with models.use(which) as model:
            assert model.step == step
    for which in ("0", "x", ""):
        with pytest.raises(RefusalError, match="Known: 1, 2"), models.use(which):
            pass
    with pytest.raises(RefusalError, match="no previous model"), Models(steps[0]).use("previous"):
        pass


def test_the_replaced_model_becomes_the_previous_one_and_closes_after_its_last_user(steps):
    models = Models(steps[0])
    with models.use() as first:
        models.replace(steps[1])
        assert models.current is steps[1] and models.previous is first
        with models.use("previous"):
            models.replace(steps[2])
            assert first.backend.closed == 0, "two still use it"
        assert first.backend.closed == 0, "one still uses it"
    assert first.backend.closed == 1
    assert models.versions == ["1", "2"]
    assert steps[1].backend.closed == 0
    models.close()
    assert steps[1].backend.closed == steps[2].backend.closed == 1


def test_the_same_file_again_leaves_the_previous_model(steps, tmp_path):
    models = Models(steps[1], steps[0])
    again = Model(Wrapped(open_backend(tmp_path / "1.onnx", "cpu", 1)))
    models.replace(again)
    assert models.current is again and models.previous is steps[0]
    assert (steps[1].backend.closed, steps[0].backend.closed) == (1, 0)
