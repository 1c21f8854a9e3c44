"""Parts that several processes write together: each is written, none waits for the dead."""

import importlib
import threading

import pytest

from jaxspec.partial_files import PartialFiles, living_parts
from jaxspec.runs.processes import Processes
from jaxspec.studies.sweep.run import write_together

sweeping = importlib.import_module("jaxspec.studies.sweep.run")  # the package's `sweep` is the function


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(sweeping, "POLL_S", 0.01)


@pytest.fixture
def parts(tmp_path):
    return [tmp_path / f"{i}.parquet" for i in range(5)]


def written(parts, index, count, *, over=lambda: False, write=None):
    order = []

    def touch(path):
        order.append(parts.index(path))
        path.touch()

    write_together(parts, write or touch, Processes(index, count), over=over)
    return order


def test_one_process_writes_what_is_missing_in_order(parts):
    parts[2].touch()
    assert written(parts, 0, 1) == [0, 1, 3, 4]
    assert written(parts, 0, 1) == []
    assert written([], 0, 1) == []


def test_a_part_that_another_writes_is_left_to_it(parts):
    with PartialFiles() as others:
        file = others.add(parts[1])
        assert list(living_parts(parts[1])) == [file.name]
        waited = threading.Timer(0.1, others.commit)
        waited.start()
        assert written(parts, 0, 2) == [0, 2, 3, 4]
        waited.join()
    assert parts[1].exists()
    assert living_parts(parts[1]) == {}


def test_the_part_of_a_dead_process_is_free_at_once(parts):
    with PartialFiles() as others:
        dead = others.add(parts[1])
        content = dead.name
    (parts[1].parent / content).touch()  # nobody holds it
    assert written(parts, 0, 2) == [0, 1, 2, 3, 4]
    assert not (parts[1].parent / content).exists()
