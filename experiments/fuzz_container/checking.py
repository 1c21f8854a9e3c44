"""One case: change a container, read it in every way, and judge what came of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.fuzz_container.lies import mutated_and_signed
from experiments.fuzz_container.mutations import directory_text, mutated
from experiments.fuzz_container.samples import Sample
from jaxspec.errors import InputError
from jaxspec.formats.container import Container, Part, unpack

__all__ = ["MOST_BYTES", "MOST_SECONDS", "Result", "change", "compile_quickly", "examine", "refusal", "run_case"]

#: What a case may take: seconds, and bytes of memory above what was held before.
MOST_SECONDS = 10.0
MOST_BYTES = 64 << 20

#: Every so many cases what is read is unpacked too.
_UNPACKED = 5

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Result(NamedTuple):
    """What came of a case.

    Attributes:
        label: which kind of case it was.
        outcome: "refused", "intact" and "other" are good; "wrong", "raised", "slow" and "memory" are not.
        detail: of a failure.
        seconds, peak_bytes: what it took.
    """

    case: int
    label: str
    outcome: str
    detail: str
    seconds: float
    peak_bytes: int

    @property
    def failed(self) -> bool:
        """Whether this is a defect."""
        return self.outcome not in ("refused", "intact", "other")


class WrongError(Exception):
    """Values that are not those that the directory promises, or a trace of a refused file."""


def compile_quickly() -> None:
    """For the rest of the process: new shapes are what takes the time, and they are small."""
    jax.config.update("jax_disable_most_optimizations", True)


def change(samples: list[Sample], seed: int, case: int) -> tuple[Sample, bytes, str, bool]:
    """The changed container of a case, what was done to it, and whether it was signed anew."""
    rng = np.random.default_rng([seed, case])
    sample = samples[case % len(samples)]
    signed = bool(rng.integers(2))
    content, done = (mutated_and_signed if signed else mutated)(sample.content, rng)
    return sample, content, done, signed


def examine(path: Path, sample: Sample, *, signed: bool, unpacked: Path | None = None) -> str:
    """Read a container in every way.

    Args:
        signed: its checksums were computed anew, so that its contents may differ from the sample's.
        unpacked: unpack it there as well.
    Returns:
        "refused", "intact" (the sample's tensors) or "other" (other tensors, those that a signed directory promises).
    Raises:
        WrongError: neither. Any other exception is a defect as well.
    """
    try:
        with Container(path) as container:
            digests = {}
            for name, tensor in container.tensors.items():
                promised: dict[Part, str] = {"draft": tensor.draft_sha256, "target": tensor.sha256}
                for part, digest in promised.items():
                    values = container.read(name, part)
                    digests[name] = hashlib.sha256(values.tobytes()).hexdigest()
                    if digests[name] != digest or values.nbytes != tensor.form.bytes:
                        raise WrongError(f"tensor {name!r} gave other values as {part} than its digest promises")
            for index in range(len(container.files)):
                container.read_header(index)
            for name in container.beside:
                container.read_file(name)
            intact = digests == sample.target
            if not signed and not intact:
                raise WrongError("a file whose checksums are the old ones gave other tensors")
            if unpacked is not None:
                _unpack(container, unpacked, None if signed else sample.files)
    except InputError as error:
        if not str(error).isprintable() or len(str(error)) > 1500:
            raise WrongError(f"a message of several lines, or too long: {str(error)[:200]!r}") from error
        return "refused"
    return "intact" if intact else "other"


def refusal(path: Path) -> str:
    """Why a container is refused; empty if it is not."""
    try:
        with Container(path) as container:
            for name in container.tensors:
                container.read(name)
    except InputError as error:
        return str(error)
    return ""


def _unpack(container: Container, folder: Path, expected: dict[str, bytes] | None) -> None:
    beside = sorted(os.listdir(folder.parent))
    try:
        unpack(container, folder)
        if expected is not None and expected != {path.name: path.read_bytes() for path in folder.iterdir()}:
            raise WrongError("unpacking gave other files")
        if {path.parent for path in folder.rglob("*")} - {folder}:
            raise WrongError("unpacking made folders")
    except InputError:
        if folder.exists():
            raise WrongError("a refused container left files behind") from None
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if sorted(os.listdir(folder.parent)) != beside:
            raise WrongError("unpacking wrote outside of its folder")


def _held(key: str) -> int:
    """Bytes of memory by the system's account; 0 where it keeps none."""
    if not _STATUS.exists():
        return 0
    return next(1024 * int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(key))


def run_case(samples: list[Sample], seed: int, scratch: Path, case: int) -> Result:
    """Judge a case: what came of it, its seconds, and its memory above what was held before."""
    sample, content, done, signed = change(samples, seed, case)
    path = scratch / "a.jspk"
    path.write_bytes(content)
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # the peak becomes what is held now
    before, started = _held("VmRSS"), time.perf_counter()
    try:
        unpacked = scratch / "out" if case % _UNPACKED == 0 else None
        outcome = examine(path, sample, signed=signed, unpacked=unpacked)
        detail = ""
    except Exception as error:  # whatever it is, it is what this experiment looks for
        outcome, detail = (
            "wrong" if isinstance(error, WrongError) else "raised",
            f"{type(error).__name__}: {error}"[:500],
        )
    seconds, taken = time.perf_counter() - started, _held("VmHWM") - before
    if outcome not in ("wrong", "raised"):
        if seconds > MOST_SECONDS:
            outcome, detail = "slow", f"{seconds:.1f} s"
        elif taken > max(MOST_BYTES, 4 * len(content)):
            outcome, detail = "memory", f"{taken / 1e6:.0f} MB above what was held"
    label = f"{sample.name}, {'signed' if signed else 'as it was signed'}"
    return Result(case, label, outcome, f"{detail} after: {done}" if detail else "", seconds, taken)


def listed(content: bytes) -> str:
    """The directory of a container as text, for a look at a case."""
    try:
        return json.dumps(json.loads(directory_text(content)), indent=1)
    except (ValueError, InputError):
        return repr(content[int.from_bytes(content[16:24], "little") :][:2000])
