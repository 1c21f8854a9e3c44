"""The lock of a run directory, also where the file system has none."""

import pytest

from jaxspec.errors import InputError
from jaxspec.runs.directory import lock_directory


def test_one_process_at_a_time(tmp_path):
    lock = lock_directory(tmp_path / "r")
    assert lock.excludes
    with pytest.raises(InputError, match="in use by another process; wait for it"):
        lock_directory(tmp_path / "r")
    lock.file.close()
    lock_directory(tmp_path / "r").file.close()
