"""Containers of bit slices and pools of experts: the elastic draft of a run, as model and as draft of every command."""

import jax.numpy as jnp
import numpy as np
import pytest
from elastic_networks import uneven_network
from packed_runs import pack_run

from hwmodels.networks import ExpertSizes
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.weights import target_network
from jaxspec.models import DecoderConfig, load_directory
from jaxspec.models.blocks import Experts
from jaxspec.models.hf_load import load_container
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts import compressed_copy, make_draft
from jaxspec.speculate.drafts.container_draft import container_footprint
from jaxspec.studies.measured.run_context import load_target

SCHEME = SCHEMES["elastic"]

#: A mixture each of whose matrices gets smaller; rows of whole groups and of others.
CONFIG = DecoderConfig(
    vocab_size=256,
    hidden_size=40,
    intermediate_size=40,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=10,
    qk_norm=True,
    experts=ExpertSizes(num_experts=7, per_token=2, inner_size=24),
    feed_forward=(Experts(),),
)


pytestmark = pytest.mark.scheme_matrix


def patterns(x):
    values = np.asarray(x)
    assert values.dtype == np.float32
    return values.view(np.uint32)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Folder with a container and what it was packed from; the hard draft of the knobs; these."""
    folder = tmp_path_factory.mktemp("elastic")
    knobs = uniform_knobs(SCHEME, CONFIG)
    bits = knobs.values["slice_bits"]
    knobs = knobs.replace_values(
        slice_bits=2.0 + jnp.arange(bits.size).reshape(bits.shape) % 5, expert_pool=jnp.asarray([0.2, 0.6])
    )
    return folder, pack_run(folder, uneven_network(CONFIG, 1, sharpness=3.0), CONFIG, knobs), knobs


def test_target_and_draft_are_those_of_the_run(packed):
    folder, draft, knobs = packed
    target = target_network(SCHEME, as_stored(load_directory(folder / "model").params))
    found, drafted = (load_container(folder / "model.jspk", part=part) for part in ("target", "draft"))
    for kind in CONFIG.matrix_kinds:
        for ours, wanted in ((found.params, target), (drafted.params, draft)):
            np.testing.assert_array_equal(
                patterns(ours["layers"][kind]), patterns(stack_of(wanted["layers"][kind]).values()), err_msg=kind
            )
    widths = container_footprint(*[str(folder / "model.jspk")] * 2)
    for place, kind in enumerate(CONFIG.matrix_kinds):
        *_, rows, columns = CONFIG.matrix_shape(kind)
        scales = 16 * -(-columns // 32) / columns
        upper = np.asarray(knobs.values["slice_bits"])[:, place, None]
        drafted, whole = (
            bits[kind].reshape(CONFIG.num_layers, -1) for bits in (widths.draft_weight_bits, widths.target_weight_bits)
        )  # "layer expert" of those
        # Sections end in whole bytes.
        np.testing.assert_allclose(drafted - upper, scales, atol=8 / (rows * columns))
        np.testing.assert_allclose(whole, 8 + scales, atol=16 / (rows * columns))


def test_the_draft_in_the_file_is_the_run_with_its_pools(packed):
    """Equal drafts with equal numbers: not only the weights are the run's."""
    folder, draft, knobs = packed
    path = str(folder / "model.jspk")
    target = load_target(path).loaded
    for sharing in (1, 3):
        ready = make_draft(path, target, sharing=sharing)
        run = compressed_copy(CONFIG, as_computed(draft), knobs, sharing=sharing)
        assert ready.draft == run.draft
        assert ready.draft.name == "model.jspk"
        np.testing.assert_array_equal(ready.params.knobs.values["expert_pool"], knobs.values["expert_pool"])
