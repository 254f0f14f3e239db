import json

import pytest
import yaml
from sites import write_task


@pytest.fixture
def task_file(tmp_path):
    """Two steps on a tiny site, a network that trains in a second."""
    return write_task(tmp_path)


@pytest.fixture
def domain_file(task_file):
    """The same by domain: the first five images by night, the others by day."""
    document = yaml.safe_load(task_file.read_text())
    document["protocol"] = {"domains": "1-1"}
    task_file.write_text(yaml.safe_dump(document))
    domains = {f"train/train_{index}": "night" if index < 5 else "day" for index in range(10)}
    (task_file.parent / "site" / "dataset.json").write_text(json.dumps({"image_domains": domains}))
    return task_file
