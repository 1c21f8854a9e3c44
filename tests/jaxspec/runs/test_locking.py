"""The lock of a run directory, also where the file system has none."""

import errno
import fcntl
import os

import pytest

from jaxspec.errors import InputError
from jaxspec.runs import Reporter, carry_out
from jaxspec.runs.directory import lock_directory
from jaxspec.studies import PredictConfig


def refuse(monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_one_process_at_a_time(tmp_path):
    lock = lock_directory(tmp_path / "r")
    assert lock.excludes
    with pytest.raises(InputError, match="in use by another process; wait for it"):
        lock_directory(tmp_path / "r")
    lock.file.close()
    lock_directory(tmp_path / "r").file.close()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "r").mkdir()
    os.symlink("../kept", tmp_path / "r" / ".lock")
    with pytest.raises(InputError, match="cannot be written"):
        lock_directory(tmp_path / "r")
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_no_other_process(tmp_path, monkeypatch, capsys, number):
    refuse(monkeypatch, number)
    lock = lock_directory(tmp_path / "r")
    assert not lock.excludes
    lock.file.close()
    found, directory = carry_out(
        "predict", PredictConfig(), lambda *_: lambda: [{"one": 1}], out=tmp_path / "s", reporter=Reporter()
    )
    assert (found, directory.finished()) == ([{"one": 1}], [{"one": 1}])
    assert "note: its file system has no locks; start no second process on this directory" in capsys.readouterr().err
