import os
import signal
import threading
import time

import pytest

from rcil.core.errors import ConfigError, RcilError
from rcil.core.files import sha256_of
from rcil_serve.watch import promotion as module
from rcil_serve.watch.promotion import Promotion, PromotionError


@pytest.fixture
def models(tmp_path):
    for step in (1, 2):
        (tmp_path / f"step{step}").mkdir()
        (tmp_path / f"step{step}" / "model.onnx").write_text(f"step {step}")
    return tmp_path / "step1" / "model.onnx", tmp_path / "step2" / "model.onnx"


def promote(model, **how):
    Promotion(**how).check(model)
    Promotion(**how).apply(model, sha256_of(model))


def test_a_link_to_a_file_is_swapped(models, tmp_path):
    link = tmp_path / "live.onnx"
    link.symlink_to("step1/model.onnx")
    promote(models[1], link=link)
    assert link.is_symlink() and link.resolve() == models[1].resolve() and link.read_text() == "step 2"
    assert models[0].read_text() == "step 1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live.onnx", "step1", "step2"], "nothing is left behind"


def test_a_link_to_a_folder_is_swapped(models, tmp_path):
    link = tmp_path / "live"
    link.symlink_to("step1")
    promote(models[1], link=link)
    assert link.resolve() == (tmp_path / "step2").resolve() and (link / "model.onnx").read_text() == "step 2"
    assert not (tmp_path / "step1" / "step2").exists()


def test_a_model_that_is_a_link_itself_is_found_in_its_own_folder(models, tmp_path):
    """The file may lie in a store under another name, and the service knows it by the name in the folder."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "abc123").write_text("step 3")
    (tmp_path / "step3").mkdir()
    (tmp_path / "step3" / "model.onnx").symlink_to(store / "abc123")
    link = tmp_path / "live"
    link.symlink_to("step1")
    promote(tmp_path / "step3" / "model.onnx", link=link)
    assert (link / "model.onnx").read_text() == "step 3" and link.readlink() == (tmp_path / "step3").resolve()


def test_a_link_that_leads_to_the_model_already_does_not_lead_to_itself(models, tmp_path):
    link = tmp_path / "live"
    link.symlink_to("step2")
    promote(link / "model.onnx", link=link)
    assert (link / "model.onnx").read_text() == "step 2"


def test_a_file_is_overwritten_and_the_old_one_kept(models, tmp_path):
    served = tmp_path / "served.onnx"
    served.write_text("step 1")
    promote(models[1], link=served)
    assert not served.is_symlink() and served.read_text() == "step 2"
    assert (tmp_path / "served.onnx.previous").read_text() == "step 1"


def test_a_link_that_is_not_there_yet_is_made(models, tmp_path):
    promote(models[1], link=tmp_path / "new" / "live.onnx")
    assert (tmp_path / "new" / "live.onnx").read_text() == "step 2"


def test_readers_never_find_the_link_missing_or_half_done(models, tmp_path):
    link = tmp_path / "live.onnx"
    link.symlink_to(models[0])
    found, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            found.append(link.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for index in range(200):
            promote(models[index % 2], link=link)
    finally:
        stop.set()
        reader.join()
    assert found and set(found) <= {"step 1", "step 2"}, "a link that is not there would end the reader with an error"
    assert link.read_text() == "step 2"


@pytest.mark.parametrize("kind", ["link", "folder", "file", "none"])
def test_a_command_that_fails_puts_everything_back(models, tmp_path, kind):
    place = tmp_path / "live"
    match kind:
        case "link":
            place.symlink_to("step1/model.onnx")
        case "folder":
            place.symlink_to("step1")
        case "file":
            place.write_text("step 1")
    with pytest.raises(PromotionError, match="sh exited with code 3: no such service"):
        promote(models[1], link=place, command="sh -c 'echo no such service >&2; exit 3'")
    if kind in ("link", "folder"):
        assert str(place.readlink()) == ("step1" if kind == "folder" else "step1/model.onnx")
    elif kind == "file":
        assert place.read_text() == "step 1" and not place.is_symlink()
    else:
        assert not place.is_symlink() and not place.exists()
    assert not list(tmp_path.glob(".*"))


def test_the_command_runs_after_the_swap_and_knows_the_model(models, tmp_path):
    link = tmp_path / "live.onnx"
    link.symlink_to(models[0])
    promote(models[1], link=link, command=f"cp {link} {tmp_path}/seen -v")
    assert (tmp_path / "seen").read_text() == "step 2"
    promote(models[1], command=f"cp {{model}} {tmp_path}/named")
    assert (tmp_path / "named").read_text() == "step 2"


def test_what_a_command_leaves_running_is_not_waited_for(models, tmp_path):
    start = time.monotonic()
    promote(models[1], command=f"sh -c 'echo started; sleep 20 & echo $! > {tmp_path}/pid'")
    passed = time.monotonic() - start
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert passed < 10


def test_a_command_may_say_much(models):
    with pytest.raises(PromotionError, match=r"python3? exited with code 1: the end\nRun"):
        promote(models[1], command='python3 -c \'print("x" * 2**20); print("the end"); raise SystemExit(1)\'')


def test_commands_that_cannot_run(models, monkeypatch):
    with pytest.raises(PromotionError, match="cannot run no-such-program"):
        promote(models[1], command="no-such-program --now")
    monkeypatch.setattr(module, "COMMAND_SECONDS", 0.05)
    with pytest.raises(PromotionError, match=r"sleep did not finish within 0\.05 s"):
        promote(models[1], command="sleep 5")
    with pytest.raises(ConfigError, match="cannot be parsed: No closing quotation"):
        Promotion(command="echo 'x").check(models[1])


def test_another_file_than_the_one_that_was_tried_is_not_promoted(models, tmp_path):
    link = tmp_path / "live.onnx"
    link.symlink_to(models[0])
    tried = sha256_of(models[1])
    models[1].write_text("something else")
    with pytest.raises(PromotionError, match="is not the file that was tested"):
        Promotion(link).apply(models[1], tried)
    models[1].unlink()
    with pytest.raises(PromotionError, match="No such file"):
        Promotion(link).apply(models[1], tried)
    assert link.read_text() == "step 1"


def test_a_place_that_cannot_be_written_is_an_error(models, tmp_path):
    (tmp_path / "blocked").write_text("a file, not a folder")
    with pytest.raises(RcilError, match="cannot promote"):
        Promotion(tmp_path / "blocked" / "live.onnx").apply(models[1], sha256_of(models[1]))


def test_what_cannot_work_is_refused_at_the_start(models, tmp_path):
    with pytest.raises(ConfigError, match="is a folder, which cannot be replaced atomically"):
        Promotion(tmp_path / "step1").check(models[1])
    (tmp_path / "live").symlink_to("step1")
    other = tmp_path / "step2" / "other.onnx"
    with pytest.raises(ConfigError, match=r"without other\.onnx"):
        Promotion(tmp_path / "live").check(other)
    engine = tmp_path / "step2" / "model.engine"
    with pytest.raises(ConfigError, match="has a sidecar"):
        Promotion(tmp_path / "live.engine").check(engine)
    (tmp_path / "step1" / "model.engine").write_text("engine")
    Promotion(tmp_path / "live").check(engine)
