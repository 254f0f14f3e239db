"""`--trust`: models that do not verify are refused wherever a model is opened."""

import shutil

import pytest
from clips import make_clip
from commands import call
from keys import make_keys
from served import write_model
from servers import client_of
from servers import write_model as write_served

from rcil.core.errors import ConfigError, TrustError
from rcil.core.files import sha256_of
from rcil.core.signing import sign
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.runtime import backends as module
from rcil_serve.runtime.backends import open_backend
from rcil_serve.watch.promotion import Promotion

LOAD = "/v2/repository/models/rcil/load"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Keys of a friend and a stranger, a clip, and two steps that the friend signed."""
    root = tmp_path_factory.mktemp("world")
    make_keys(root, "friend")
    make_keys(root, "stranger")
    make_clip(root / "clip.mp4", 4)
    for step in (0, 1):
        (root / f"step{step}").mkdir()
        write_model(root / f"step{step}" / "model.onnx", step=step)
        sign(root / f"step{step}", root / "friend.pem")
    return root


@pytest.fixture
def site(world, tmp_path, monkeypatch):
    root = tmp_path / "site"
    shutil.copytree(world, root)
    monkeypatch.chdir(root)
    return root


def change(folder):
    with (folder / "model.onnx").open("ab") as file:
        file.write(b"\n")


SPOILED = {
    "unsigned": (lambda folder: (folder / "model.sig").unlink(), "not signed"),
    "changed": (change, "model.onnx was changed"),
    "added": (lambda folder: (folder / "model.engine").write_bytes(b"x"), "model.engine was added"),
    "another key": (lambda folder: sign(folder, folder.parent / "stranger.pem"), "another key"),
    "truncated": (
        lambda folder: (folder / "model.sig").write_bytes(b'{"media'),
        "model.sig is not a model signing statement",
    ),
}
spoiled = pytest.mark.parametrize(("spoil", "words"), SPOILED.values(), ids=SPOILED)


def test_a_signed_model_runs_as_ever(site):
    trusted = open_backend(site / "step1" / "model.onnx", "cpu", 1, [site / "friend.pub"])
    plain = open_backend(site / "step1" / "model.onnx", "cpu", 1)
    assert (trusted.name, trusted.sha256, trusted.metadata) == (plain.name, plain.sha256, plain.metadata)


@spoiled
def test_what_does_not_verify_is_not_opened(site, spoil, words):
    spoil(site / "step1")
    with pytest.raises(TrustError, match=words):
        open_backend(site / "step1" / "model.onnx", "cpu", 1, [site / "friend.pub"])


def test_a_file_that_changes_after_it_was_verified_is_not_run(site, monkeypatch):
    path = site / "step1" / "model.onnx"
    verify = module.verify

    def verify_and_change(*arguments):
        statement = verify(*arguments)
        change(site / "step1")
        return statement

    monkeypatch.setattr(module, "verify", verify_and_change)
    with pytest.raises(TrustError, match="changed while it was being opened"):
        open_backend(path, "cpu", 1, [site / "friend.pub"])


COMMANDS = {
    "video": "clip.mp4 -m step1/model.onnx -o seen.mp4",
    "video, dry": "clip.mp4 -m step1/model.onnx -o seen.mp4 --dry-run",
    "images": "clip.png -m step1/model.onnx -o seen",
    "diff, new": "step0/model.onnx step1/model.onnx clip.mp4 -o changes",
    "diff, old": "step1/model.onnx step0/model.onnx clip.mp4 -o changes",
    "diff, dry": "step0/model.onnx step1/model.onnx clip.mp4 -o changes --dry-run",
    "watch": "clip.mp4 -m step1/model.onnx",
    "watch, previous": "clip.mp4 -m step0/model.onnx --previous step1/model.onnx",
    "http": "-m step1/model.onnx",
    "http, previous": "-m step0/model.onnx --previous step1/model.onnx",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_with_an_exit_code_of_its_own(site, name):
    import cv2
    import numpy as np

    cv2.imwrite("clip.png", np.zeros((48, 64, 3), np.uint8))
    change(site / "step1")
    before = {path for path in site.rglob("*") if path.suffix != ".lock"}
    words = COMMANDS[name].split()
    done = call(f"rcil-serve {name.split(',')[0]}", *words, "--trust", "stranger.pub", "--trust", "friend.pub")
    assert done.code == 12, done.err
    assert "model.onnx was changed" in done.err
    left = {path for path in site.rglob("*") if path.suffix != ".lock"} - before
    assert not left, "nothing is written"


def test_the_checkpoint_of_an_overlay_is_verified_too(site):
    (site / "m.safetensors").write_bytes(b"no tensors")
    words = ["image.png", "mask.png", "-m", "m.safetensors", "-o", "out.png", "--trust", "friend.pub"]
    assert call("rcil-serve overlay", *words).code == 12
    sign(site / "m.safetensors", site / "friend.pem")
    assert call("rcil-serve overlay", *words).code == 3, "it goes on to read the checkpoint, which is none"


def test_a_public_key_that_is_none_is_a_wrong_request(site):
    done = call("rcil-serve video", *COMMANDS["video"].split(), "--trust", "friend.pem")
    assert done.code == 2 and "friend.pem is not a public key" in done.err


@spoiled
def test_a_reload_that_does_not_verify_leaves_the_old_model_and_is_counted(tmp_path, spoil, words):
    make_keys(tmp_path, "stranger")
    keys, folder = make_keys(tmp_path, "friend"), tmp_path / "live"
    folder.mkdir()
    path = write_served(folder / "model.onnx", 1)
    sign(folder, keys.private)
    with client_of(make_app(HttpOptions(path, threads=1, trust=(keys.public,)))) as client:
        write_served(path, 2)
        sign(folder, keys.private)
        spoil(folder)
        answer = client.post(LOAD, json={"parameters": {"force": True}})
        assert answer.status_code == 422
        assert "the old model keeps serving" in answer.json()["error"] and words in answer.json()["error"]
        assert 'rcil_reloads_total{result="untrusted"} 1.0' in client.get("/metrics").text
        assert client.get("/classes").json()["current"]["step"] == 1
        (folder / "model.engine").unlink(missing_ok=True)
        write_served(path, 2)
        sign(folder, keys.private)
        assert client.post(LOAD, json={}).status_code == 200
        assert client.get("/classes").json()["current"]["step"] == 2


def test_a_model_is_promoted_only_while_it_verifies(site):
    model, link, trust = site / "step1" / "model.onnx", site / "live", (site / "friend.pub",)
    link.symlink_to("step0")
    promotion = Promotion(link, trust=trust)
    promotion.check(model)
    (site / "step1" / "report.html").write_text("added later")
    with pytest.raises(TrustError, match=r"report\.html was added"):
        promotion.apply(model, sha256_of(model))
    assert link.resolve() == (site / "step0").resolve()
    (site / "step1" / "report.html").unlink()
    promotion.apply(model, sha256_of(model))
    open_backend(link / "model.onnx", "cpu", 1, trust)


def test_a_copy_over_a_file_would_lose_the_signature(site):
    shutil.copy(site / "step0" / "model.onnx", site / "live.onnx")
    promotion = Promotion(site / "live.onnx", trust=(site / "friend.pub",))
    with pytest.raises(ConfigError, match="would lose its signature"):
        promotion.check(site / "step1" / "model.onnx")


def test_a_shadow_that_does_not_verify_is_not_tried_out(site):
    words = "clip.mp4 -m step0/model.onnx --shadow step1/model.onnx --promote-after 1 --promote-link live"
    (site / "live").symlink_to("step0")
    change(site / "step1")
    done = call("rcil-serve watch", *words.split(), "--trust", "friend.pub", "--threads", "1")
    assert done.code == 0, done.err
    assert "step1/model.onnx is not tested" in done.out and "model.onnx was changed" in done.out
    assert (site / "live").resolve() == (site / "step0").resolve()
