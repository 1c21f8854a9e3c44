"""What is said before a run of the memory of each device of a mesh, and what XLA says of the compiled program."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.network

#: The shape of Llama-3.1-8B, 96 windows of 200 tokens, 16 at once, matrices split over eight forced devices. Nothing is
#: allocated, so that a process of the size of the tests asks about gigabytes; 32 layers compile as one.
PROGRAM = """
import json, sys
import jax
from memory_of_programs import analyse
from experiments.random_checkpoint import SHAPES
from jaxspec.models.config import decoder_config

assert jax.device_count() == 8
print(json.dumps(analyse(decoder_config(SHAPES["llama-3.1-8b"]), 96, 200, 16, (1, 8), sys.argv[1])))
"""


@pytest.mark.parametrize("program", ["hard draft", "gradient step"])
def test_the_estimate_is_what_xla_says(program):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, program],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    estimated_bytes, total_bytes = json.loads(child.stdout)
    # Counted as if `tensor` did not split activations it errs by 39 and 90 %, without the gathered head by 13 and 12 %.
    assert estimated_bytes == pytest.approx(total_bytes, rel=0.1)
