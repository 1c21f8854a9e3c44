"""Progress in a notebook, and objects that draw themselves there."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec as js
from jaxspec.api.progress import notebook_reporter
from jaxspec.compress import find_scheme, uniform_knobs
from jaxspec.models.config import DecoderConfig
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.topology import tree_from_parents


@pytest.mark.parametrize("make", [notebook_reporter, js.runs.Reporter])
def test_a_notebook_shows_one_line_that_changes(monkeypatch, capfd, make):
    shown = []
    handle = types.SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    def display(data, **_):
        shown.append(data["text/plain"])
        return handle

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=None)
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    reporter = make()
    reporter.line("run <directory> runs/x")
    with reporter.bar("building", 2) as bar:
        bar.advance("one")
        bar.advance("two")
    assert shown[0] == "run <directory> runs/x"
    assert shown[-1].startswith("building: two, done in")
    ipython.get_ipython = lambda: None
    count = len(shown)
    notebook_reporter().line("nothing")
    assert len(shown) == count
    assert capfd.readouterr() == ("", "")


def test_trees_have_a_line_and_a_drawing():
    tree = tree_from_parents([-1, -1, 0, 0, 2], size=8)
    assert repr(tree) == "<Tree: 5 nodes, 3 deep, 3 leaves>"
    assert tree._repr_html_().count("<circle") == 6
    assert tree._repr_html_().count("<line") == 5
    ranked = RankedTree(np.array([-1, 0]), np.array([0, 3]))
    assert repr(ranked) == "<RankedTree: 2 nodes, 2 deep, 1 leaves>"
    assert ">3</text>" in ranked._repr_html_()
    assert repr(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), tree)) == "<Tree: parents of shape (2, 8)>"
    jax.eval_shape(lambda traced: [repr(traced), traced._repr_html_()] and traced.parent, tree)


def test_devices_architectures_and_knobs_have_a_line_and_a_table():
    device, shape = js.device("alveo-v80"), js.architecture("llama-3.2-1b")
    assert repr(device).startswith("Device(peak_flops_per_s=")
    assert "matrix_unit.rows" in device._repr_html_()
    assert "num_layers=16" in repr(shape)
    assert "kv_lora_rank" in shape._repr_html_()
    assert "(3,), 1 to 1" in repr(jax.tree.map(lambda leaf: jnp.ones(3), shape))
    jax.eval_shape(lambda traced: [repr(traced), traced._repr_html_()] and traced.num_layers, shape)
    config = DecoderConfig(
        vocab_size=16, hidden_size=8, intermediate_size=12, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4
    )
    knobs = uniform_knobs(find_scheme("cassandra1"), config, weight_prune=0.25)
    assert "weight_prune 0.25," in repr(knobs)
    assert "draft_length" in knobs._repr_html_()
    jax.eval_shape(lambda traced: [repr(traced), traced._repr_html_()] and 1.0, knobs)
