"""The deployed file alone is enough for the next step: train, fold, add a class to the folded file, export."""

import json

import pytest
from commands import QUICK, call

from rcil.core.files import sha256_of
from rcil.model.header import read_header


@pytest.fixture(scope="module")
def deployed(world, tmp_path_factory):
    """A folded checkpoint of a model that was trained on balls."""
    folder = tmp_path_factory.mktemp("deployed")
    site = ["--set", f"data.root={world / 'site'}", "--set", "protocol.steps=[[ball]]"]
    assert call("rcil train", str(world / "task.yaml"), "-o", str(folder / "run"), *site).code == 0
    path = folder / "deployed.safetensors"
    assert call("rcil-export fold", str(folder / "run" / "step0.safetensors"), "-o", str(path)).code == 0
    return path


@pytest.mark.parametrize("method", ["rcil-plus", "strict"])
def test_a_folded_model_learns_and_is_deployed_again(deployed, world, tmp_path, method):
    start = f"--from {deployed} --data {world / 'site'} --class cone -o {tmp_path / 'taught'} {QUICK} --method {method}"
    done = call("rcil add-class", *start.split())
    assert done.code == 0, done.err
    assert ("norms are fitted to" in done.out) == (method != "strict")
    taught = tmp_path / "taught" / "model.safetensors"
    metadata = read_header(taught).metadata
    assert [e.source for e in metadata.lineage][1:] == ["fold", "rcil add-class"]
    assert metadata.lineage[-1].parent_sha256 == sha256_of(deployed)
    assert metadata.architecture.folded == (method == "strict")
    options = f"{taught} -o {tmp_path / 'new'} --size 48x64 --rounds 0 --images {world / 'site'} --previous {deployed}"
    done = call("rcil-export export", *options.split())
    assert done.code == 0, done.out + done.err
    report = json.loads((tmp_path / "new" / "report.json").read_text())
    assert report["ok"] and {"certificate", "lineage"} <= {result["key"] for result in report["results"]}
    assert call("rcil-export verify", str(tmp_path / "new"), str(taught)).code == 0
