"""Problems with checkable answers in `jaxspec compare`: which task, what counts as right, numbers beside those of samples."""

import jax
import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.models.embedded import load_model
from jaxspec.models.stored import as_computed
from jaxspec.scaling import sample_continuations
from jaxspec.settings import build_config
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies import CompareConfig
from jaxspec.studies.compare.entries import check_task, task_accuracy
from jaxspec.studies.measured.checking import check_inputs
from jaxspec.tuning.calibration import target_params

CODE = "".join(f"def f{i}(x):\n    return x + {i}\n\n\n" for i in range(60))
FEW = {"prompts": 2, "prompt_tokens": 12, "output_tokens": 4, "calibration_prompts": 2}


def checked(given, text=None):
    config = build_config(CompareConfig, FEW | ({} if text is None else {"text": str(text)}) | given)
    return config, check_inputs(config)


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "code.py"
    path.write_text(CODE)
    return path


@pytest.fixture(scope="module")
def network():
    loaded = load_model("embedded-arithmetic")
    return as_computed(target_params(loaded.params)), loaded.config


@pytest.mark.study
def test_greedy_answers_are_those_of_one_sample_without_chance(network):
    params, config = network
    task, reason = check_task(*checked({"model": "embedded-arithmetic", "problems": 6}))
    assert (task.settings.task, reason) == ("arithmetic", None)
    right = task.right(task.written(params, config, lambda: None))["right"]
    wanted = []
    for problem in task.problems.problems:
        prompt = np.frombuffer(problem.text, np.uint8).astype(np.int32)
        (text,) = sample_continuations(
            params,
            config,
            prompt,
            samples=1,
            num_tokens=64,
            seed=jax.random.key(0),
            decoding=GREEDY,
            stop=np.array([46]),
        ).texts()
        wanted.append(bytes(text.astype(np.uint8)).endswith(f";{problem.value}.".encode()))
    assert right.tolist() == wanted
    assert 2 <= sum(wanted) <= 6


def test_the_task_follows_the_network_and_its_text(tiny_model, some_text, code):
    given = {"model": str(tiny_model), "problems": 5}
    task, reason = check_task(*checked(given | {"task": "arithmetic"}, some_text))
    assert (task.settings.task, len(task.problems.prompts)) == ("arithmetic", 5)
    assert check_task(*checked({"model": str(tiny_model), "task": "none"}, some_text)) == (None, None)
    # A text without functions: no task, unless one is asked for.
    task, reason = check_task(*checked(given, some_text))
    assert task is None
    assert "has 0 functions" in reason
    with pytest.raises(InputError, match="has 0 functions"):
        check_task(*checked(given | {"task": "python"}, some_text))
    with pytest.raises(InputError, match="problems is 1; allowed is 2 to"):
        build_config(CompareConfig, {"problems": 1})
    with pytest.raises(InputError, match="the task is none"):
        build_config(CompareConfig, {"problems": 5, "task": "none"})
    task, _ = check_task(*checked({"problems": 5}, code))
    assert task.settings.task == "python"
    assert all(prompt.startswith(b"def ") or b"\ndef " in prompt for prompt in task.problems.prompts)


def test_accuracy_is_a_share_with_an_interval_and_a_paired_difference():
    right = np.array([True, True, False, True, False, True, True, True])
    plain = np.array([True, True, True, True, False, True, True, False])
    found = task_accuracy(right, plain)
    assert found.accuracy.known == 0.75
    assert 0.35 < found.low.known < 0.75 < found.high.known < 0.95
    # One problem lost, one won: differences of one in two of eight.
    assert found.change.known == 0
    assert found.change.standard_error == pytest.approx(np.sqrt(2 / 7 / 8))
    assert {each.status for each in (found.accuracy, found.low, found.high, found.change)} == {"measured"}
