"""What a tuning run says on a terminal: the answer, the proof, the rows, and what to do next."""

from pathlib import Path

import pytest

from jaxspec.studies.tune.result import TuneResult
from jaxspec.studies.tune.view import terminal_lines

RUN = Path("runs/tune-0123456789ab")


@pytest.fixture
def result(make_entry):
    return TuneResult.from_plain(make_entry())


def test_the_answer_comes_first_and_what_to_do_next_last(result):
    lines = terminal_lines([result], RUN)
    assert "the tuned draft is predicted to decode 2.33x as fast as 16-bit autoregressive decoding" in lines[0]
    assert lines[1].startswith("rtx-4090, measured: Lossless: speculative and autoregressive output agree in all ")
    for name in ("default", "grid", "uniform", "tuned"):
        assert f"{name}: " in lines[2]
    assert "j_grid" not in lines[2]
    assert f"open {RUN}/report.html" in lines[-2]
    assert lines[-1] == f"next: jaxspec export {RUN} -o draft writes the tuned draft for vLLM, SGLang or llama.cpp"
