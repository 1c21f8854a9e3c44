"""Files appear whole or not at all, and what dead processes left of them goes."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from jaxspec import partial_files
from jaxspec.partial_files import PartialFiles, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_several_files_appear_together_or_not_at_all(tmp_path):
    with PartialFiles() as files:
        files.add(tmp_path / "new" / "below" / "a").write_text("a")
        files.add(tmp_path / "new" / "b").write_text("b")  # and no commit, as where the work fails
    assert names(tmp_path) == []
    with PartialFiles() as files:
        files.add(tmp_path / "new" / "a").write_text("a")
        files.add(tmp_path / "b").write_text("b")
        assert not (tmp_path / "b").exists()
        files.commit()
    assert names(tmp_path) == ["b", "new"]
    assert names(tmp_path / "new") == ["a"]


def test_a_part_of_a_killed_process_goes_with_the_next_run(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from jaxspec.partial_files import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as part: part.write_text('half'); print('begun', flush=True); time.sleep(60)"
    )
    path = tmp_path / "result.json"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    (left,) = names(tmp_path)
    assert left.startswith(f".result.json.{process.pid}.")
    write_text(path, "another process writes it meanwhile")
    assert names(tmp_path) == [left, "result.json"]  # a living process keeps its part
    process.send_signal(signal.SIGKILL)
    process.communicate()
    write_text(path, "whole")
    assert names(tmp_path) == ["result.json"]


def test_no_link_laid_at_the_name_of_a_part_is_followed(tmp_path, monkeypatch):
    """Whoever guesses a name makes the write fail, and nothing elsewhere changes."""
    (tmp_path / "elsewhere").write_text("kept")
    monkeypatch.setattr(partial_files.secrets, "token_hex", lambda count: "5" * 16)
    os.symlink("elsewhere", tmp_path / f".x.{os.getpid()}.{'5' * 16}.part")
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "x", "new")
    monkeypatch.undo()
    with PartialFiles() as files:
        parts = {files.add(tmp_path / name).name.removeprefix(f".{name}.") for name in "xyz"}
        assert len(parts) == 3
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_a_disk_that_refuses_leaves_no_file(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=r"Input/output error"):
        write_text(tmp_path / "x", "new")
    assert names(tmp_path) == []
