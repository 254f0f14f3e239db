import fcntl
import os
import signal
import stat
import subprocess
import sys

import pytest

from rcil.core import files
from rcil.core.errors import ConfigError, RcilError
from rcil.core.files import building, check_writable, is_free, replacing, sha256_of, working_in


def test_the_file_appears_whole(tmp_path):
    target = tmp_path / "new" / "a.txt"
    with replacing(target) as part:
        part.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert stat.S_IMODE(target.stat().st_mode) & stat.S_IRUSR


def test_an_error_keeps_the_old_content_and_leaves_nothing(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def interrupted():
        with replacing(target) as part:
            part.write_text("half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_disk_errors_name_the_file(tmp_path):
    with pytest.raises(RcilError, match=r"a\.txt: No space left"), replacing(tmp_path / "a.txt"):
        raise OSError(28, "No space left on device")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RcilError, match="cannot write"), replacing(tmp_path / "file" / "a.txt"):
        pass


def test_sha256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with building(tmp_path / "new" / "site") as part:
        (part / "a").write_text("x")
        assert not (tmp_path / "new" / "site").exists()
    assert [p.name for p in (tmp_path / "new" / "site").iterdir()] == ["a"]

    def interrupted():
        with building(tmp_path / "new" / "other") as part:
            (part / "a").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["site"]


def test_which_folders_are_free(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert is_free(tmp_path / "none")
    assert is_free(tmp_path / "empty")
    assert not is_free(tmp_path / "file")
    assert not is_free(tmp_path)


HOLD = """
import sys, time
from pathlib import Path
from rcil.core.files import working_in
with working_in(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_held_against_others_until_its_process_ends(tmp_path):
    folder = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(ConfigError, match="another process is working in"), working_in(folder):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with working_in(folder):
        assert is_free(folder)
    assert list(tmp_path.iterdir()) == []


WRITE = """
import sys, time
from pathlib import Path
from rcil.core.files import building, replacing
with {"file": replacing, "folder": building}[sys.argv[1]](Path(sys.argv[2])):
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_cleared_and_what_another_still_writes_is_not(tmp_path, kind):
    target = tmp_path / "a"
    parts = []
    writers = []
    for _ in range(2):
        writers.append(subprocess.Popen([sys.executable, "-c", WRITE, kind, target], stdout=subprocess.PIPE))
        assert writers[-1].stdout.readline() == b"writing\n"
        parts.append((set(tmp_path.iterdir()) - set(parts)).pop())
    writers[0].kill()
    writers[0].communicate()
    (tmp_path / ".a.other.part").write_text("nobody's")
    with (replacing if kind == "file" else building)(target):
        pass
    assert set(tmp_path.iterdir()) == {target, parts[1], tmp_path / ".a.other.part"}
    writers[1].kill()
    writers[1].communicate()


def test_a_temporary_name_that_is_cleared_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    """What another process can do between the two calls, at its worst."""
    made, new = [], files._new_file

    def cleared(path):
        part, handle = new(path)
        if not made:
            part.unlink()
        made.append(part)
        return part, handle

    monkeypatch.setattr(files, "_new_file", cleared)
    with replacing(tmp_path / "a") as part:
        part.write_text("whole")
    assert len(made) == 2 and (tmp_path / "a").read_text() == "whole"


def test_without_locks_files_are_written_and_nothing_is_cleared(tmp_path, monkeypatch):
    def refused(handle, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    left = tmp_path / ".a.abcdefgh.part"
    left.write_text("left")
    with replacing(tmp_path / "a") as part:
        part.write_text("whole")
    assert set(tmp_path.iterdir()) == {tmp_path / "a", left}


def test_a_folder_in_a_place_where_nothing_may_be_made_is_held_too(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied")

    def hold_twice():
        with working_in(tmp_path / "mine"), working_in(tmp_path / "mine"):
            pass

    monkeypatch.setattr(files, "_lock", refused)
    with pytest.raises(RcilError, match=r"cannot write to .*mine: Permission denied"):
        hold_twice()
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="another process is working in"):
        hold_twice()
    with working_in(tmp_path / "mine"):
        assert is_free(tmp_path / "mine")


def test_check_writable(tmp_path, monkeypatch):
    check_writable(tmp_path / "new" / "file")
    (tmp_path / "file").touch()
    check_writable(tmp_path / "file")
    with pytest.raises(RcilError, match="file is not a folder"):
        check_writable(tmp_path / "file" / "inside")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(RcilError, match="no permission"):
        check_writable(tmp_path / "new")
