"""What a run says of a checkpoint whose tensors are not all in 16 bits."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.studies import EvaluateConfig
from jaxspec.studies.measured.run_context import load_inputs


@pytest.mark.parametrize(
    ("narrow", "note"),
    [
        (
            np.float16,
            "the checkpoint stores float16, float32; target and draft have its float32 values rounded to bfloat16; its float16 "
            "values stay as they are",
        ),
        (
            np.float32,
            "the checkpoint stores float32; target and draft have its float32 values rounded to bfloat16",
        ),
    ],
)
def test_only_wide_values_are_rounded_and_the_note_says_so(tiny_model, some_text, tmp_path, narrow, note):
    shutil.copytree(tiny_model, tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = {
        name: tensor.astype(np.float32 if tensor.ndim == 1 else narrow) for name, tensor in load_file(file).items()
    }
    save_file(tensors, file, metadata={"format": "pt"})
    config = EvaluateConfig(
        model=str(tmp_path / "model"), text=str(some_text), prompts=2, prompt_tokens=8, output_tokens=4
    )
    setup = load_inputs(config)
    assert note in setup.notes
    assert setup.stored["layers"]["q"].dtype == ("float16" if narrow is np.float16 else "bfloat16")
    assert setup.loaded.rounded
