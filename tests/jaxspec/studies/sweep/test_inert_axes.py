"""Axes without effect are refused where nothing could give them one, and told where no point of a sweep shows one."""

import jax
import numpy as np
import pytest
from jax.interpreters import partial_eval

from hwmodels.analysis.design_point import leaf_names
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.studies.design_tree import _UNREAD, design_tree, number_rules
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import _one, begin_points, plan_sweep

TOGETHER = {
    "architecture": ("qwen3-30b-a3b",),
    "device": ("h100-sxm",),
    "tensor_parallel": 2,
    "data_parallel": 2,
    "expert_parallel": 4,
}


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"device.group.draft_tensor_parallel": 2.0}, "the draft is a part of the target"),
        ({"workload.prompt_tokens": 100.0}, "no prompt is processed"),
        ({"device.matrix_unit.prefill.chain_s": 1e-6}, "no prompt is processed"),
    ],
)
def test_a_number_that_no_result_depends_on_is_refused(numbers, reason):
    ((name, value),) = numbers.items()
    with pytest.raises(InputError, match=f"^axes.{name} would have no effect: {reason}"):
        plan_sweep(SweepConfig(axes={name: [value, 2 * value]}, **TOGETHER))
    with pytest.raises(InputError, match=f"^set.{name} would have no effect: {reason}"):
        plan_sweep(SweepConfig(axes={"workload.batch": [1.0]}, set=numbers, **TOGETHER))


@pytest.mark.study
def test_all_other_numbers_are_read_and_those_have_no_effect():
    config = SweepConfig(axes={"workload.batch": [8.0]}, engine="vllm", **TOGETHER)
    base = design_tree(config, config.architecture[0], config.device[0], parallel=config)
    leaves, treedef = jax.tree.flatten(base)
    names, values = leaf_names(base), [np.float32(leaf) for leaf in leaves]
    program = jax.make_jaxpr(lambda *leaves: _one(treedef.unflatten(leaves), None, 2)[0])(*values).jaxpr
    _, read = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    rules = number_rules(base["architecture"], base["device"], find_scheme(config.scheme))
    unread = {name for name, one in zip(names, read, strict=True) if not one and name in rules}
    # Knobs decide widths and acceptance; further devices draw power, where that is known.
    assert {name for name in unread if not name.startswith("draft.")} == {"device.group.idle"}
    refused = [name for name in names if name.startswith(tuple(_UNREAD))]
    assert len(refused) > len(_UNREAD)
    own = dict(zip(names, map(float, values), strict=True))
    doubled = (1.0 + np.eye(len(refused) + 1)[1:]).T  # a point for each, after one with none
    varied = {name: (own[name] or 1e-6) * factors for name, factors in zip(refused, doubled.T, strict=True)}
    for column in begin_points(base, varied, shape=(len(refused) + 1,), max_draft_length=2)().values():
        assert len(np.unique(column)) == 1
