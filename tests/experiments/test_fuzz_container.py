"""A fixed piece of the fuzzing of containers, and proof that it would find what it looks for."""

import collections
from functools import partial

import jax
import numpy as np
import pytest

from experiments.fuzz_container import __main__ as command
from experiments.fuzz_container import checking, lies
from experiments.fuzz_container.checking import run_case
from experiments.fuzz_container.lies import mutated_and_signed
from experiments.fuzz_container.mutations import Apart
from experiments.fuzz_container.samples import build_samples
from jaxspec.formats.container import CODECS, Container
from jaxspec.settings.schemes import SCHEME_FACTS

pytestmark = pytest.mark.signals


@pytest.fixture(scope="module")
def samples():
    jax.config.update("jax_disable_most_optimizations", True)
    yield build_samples()
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def run(samples, tmp_path):
    return partial(run_case, samples, 20, tmp_path)


def test_samples_cover_every_scheme(samples, tmp_path):
    assert {sample.name for sample in samples} > set(CODECS)
    for sample in samples:
        (tmp_path / "a.jspk").write_bytes(sample.content)
        with Container(tmp_path / "a.jspk") as container:
            assert container.scheme == sample.name.split()[0]
            # Each codec has something to do, and several chunks where it should.
            assert {tensor.codec for tensor in container.tensors.values()} == {container.scheme, "raw"}
            most = max(len(tensor.chunks) for tensor in container.tensors.values())
            assert (most > 1) == sample.name.endswith("in chunks")
        assert checking.examine(tmp_path / "a.jspk", sample, signed=False, unpacked=tmp_path / "out") == "intact"
        assert (sample.files is None) == (not SCHEME_FACTS[container.scheme].lossless)


def test_changes_that_are_signed_pass_the_checksums(samples, tmp_path):
    """What refuses them is never the directory's digest nor a section's checksum."""
    changed = 0
    for seed in range(60):
        content, done = mutated_and_signed(samples[2].content, np.random.default_rng(seed))
        (tmp_path / "a.jspk").write_bytes(content)
        changed += content != samples[2].content
        message = checking.refusal(tmp_path / "a.jspk")
        assert "checksum" not in message, done
    assert changed > 45


@pytest.mark.parametrize("lie", ["_entries", "_header", "_overlap"])
def test_lies_about_which_tensors_there_are_give_no_other_tensors(samples, tmp_path, lie):
    """Swapped, removed, added and overlapping entries, all checksums right: refused, or nothing was changed."""
    path, outcomes = tmp_path / "a.jspk", collections.Counter()
    for seed in range(60):
        sample, apart = samples[seed % 3], Apart(samples[seed % 3].content)
        getattr(lies, lie)(np.random.default_rng(seed), apart)
        path.write_bytes(apart.signed())
        outcomes[checking.examine(path, sample, signed=True)] += 1
    assert outcomes["refused"] > 45
    assert outcomes["other"] == 0


def found_soon(run, outcome):
    """Whether one of the first cases has this outcome, and those before it none that is a defect."""
    first = next(result for result in map(run, range(100)) if result.failed)
    return first.outcome == outcome


@pytest.mark.parametrize(
    ("defect", "outcome"),
    [
        (lambda name: np.zeros(3, np.uint16), "wrong"),
        (lambda name: {}[name], "raised"),
        (lambda name: np.ones(1 << 27, np.uint8), "memory"),
    ],
)
def test_planted_defects_are_found(run, monkeypatch, defect, outcome):
    read = Container.read

    def with_defect(self, name, part="target"):
        found = read(self, name, part)
        broken = defect(name) if name == "counts" else found
        return found if outcome == "memory" else broken

    monkeypatch.setattr(Container, "read", with_defect)
    assert found_soon(run, outcome)


def test_two_thousand_cases():
    assert not command.fuzz(2_000, 0)[1]
