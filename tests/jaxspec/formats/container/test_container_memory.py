"""Memory is bounded by pieces, not by tensors: measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.scheme_matrix

if not Path("/proc/self/clear_refs").exists():
    pytest.skip("peaks of memory are read from Linux's /proc", allow_module_level=True)

MEASURE = """
import json, sys
from pathlib import Path

import numpy as np
from container_samples import pack_to, tensor, weights, write_checkpoint

from jaxspec.formats.container import Container, unpack

folder, scheme_name, megabytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
columns = 4000
rows = megabytes * 1_000_000 // (2 * columns)


def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def peak_above_baseline(work):
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
    baseline = status("VmRSS")
    work()
    return status("VmHWM") - baseline


def roundtrip(source, name):
    pack_to(folder / f"{name}.jspk", source, scheme_name)
    restore(name)


def restore(name):
    with Container(folder / f"{name}.jspk") as container:
        unpack(container, folder / f"{name} unpacked")


small = write_checkpoint(folder / "small" / "model.safetensors", [tensor("a", "BF16", weights((20, 61), seed=1))])
roundtrip(small, "small")

# A little more than a tensor as large again must not be held, and the rows repeat so that making them takes no time.
block = weights((500, columns), seed=2).tobytes()
size = 2 * rows * columns
header = json.dumps({"a": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, size]}}).encode()
source = folder / "large" / "model.safetensors"
source.parent.mkdir()
with source.open("wb") as file:
    file.write(len(header).to_bytes(8, "little") + header)
    for first in range(0, rows, 500):
        file.write(block[: 2 * columns * min(500, rows - first)])
del block
found = {"largest": size}
found["pack"] = peak_above_baseline(lambda: pack_to(folder / "large.jspk", source, scheme_name))
found["unpack"] = peak_above_baseline(lambda: restore("large"))
with Container(folder / "large.jspk") as container:
    found["lossless"] = container.lossless
found["same"] = (folder / "large unpacked" / "model.safetensors").read_bytes() == source.read_bytes()
print(json.dumps(found))
"""


def measure(folder, scheme_name, megabytes):
    command = [sys.executable, "-c", MEASURE, str(folder), scheme_name, str(megabytes)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(found):
    # What one piece takes is the same for every tensor, near 0.3 GB at most; it is below twice the tensor from here on.
    assert found["same"] == found["lossless"]
    assert found["pack"] < 2 * found["largest"]
    assert found["unpack"] < found["largest"]


def test_memory_of_packing_and_unpacking(tmp_path):
    check(measure(tmp_path, "huffman", 127))
