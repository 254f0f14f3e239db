import pytest
import yaml
from fake_device import process_with_gpu
from sites import make_site


@pytest.fixture(scope="session")
def gpu():
    """Calls a function in a process that has a fake GPU."""
    with process_with_gpu() as call:
        yield call


@pytest.fixture(scope="session")
def task_file(tmp_path_factory):
    """Two steps of one iteration on a tiny site."""
    folder = tmp_path_factory.mktemp("gpu")
    make_site(folder / "site", images=6)
    document = {
        "name": "tiny",
        "recipe": "paper",
        "data": {"root": "site"},
        "protocol": {"steps": [["ball"], ["cone"]]},
        "network": {"backbone": "resnet18", "blocks": [1, 1, 1, 1], "width": 8, "head_width": 8},
        "training": {"epochs": [1, 1], "batch": 4, "epoch_images": 4, "crop": 64, "workers": 0, "settle": 1},
    }
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
