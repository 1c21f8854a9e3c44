"""Numbers of the guide that follow from committed files: computed here, so that none stays behind."""

import json
import math
import re

import jax
import jax.numpy as jnp
import pytest
from code_blocks import ROOT

from hwmodels import (
    LAYER_MATRICES,
    OPERATORS,
    Acceptance,
    Workload,
    best,
    catalog,
    decode_operators,
    kv_elements_per_token,
    prefill_step,
    speculation_speedup,
    step_cost,
    step_operators,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.catalog.huggingface import FAMILIES, WRAPPERS
from hwmodels.network.architecture import state_bytes
from jaxspec.compress import SCHEMES
from jaxspec.compress.knobs import knob_defaults
from jaxspec.models.embedded import embedded_directory
from jaxspec.models.families import runnable_families, runnable_names
from jaxspec.studies.pack.run import PackConfig, pack_checkpoint

PAGE = (ROOT / "docs" / "pages" / "hardware.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())

LLAMA = catalog.architecture("llama-3.1-8b")


NPU = "cassandra-npu-roofline"


def llama_step_s(device, bits):
    """One sequence, context 1024; bits of the layers' weights."""
    footprint = uniform_footprint(16).replace(target_weight_bits=uniform_weight_bits(bits, LAYER_MATRICES))
    work = decode_operators(LLAMA, Workload(context_tokens=1024.0), footprint=footprint)
    return float(step_cost(catalog.device(device), work).total_s)


def test_gains_of_4_bits_with_measured_kernels_and_with_scaled_bytes():
    measured, scaled = (llama_step_s(gpu, 16.0) / llama_step_s(gpu, 4.0) for gpu in ("a100-sxm-80gb", "h100-sxm"))
    assert f"4-bit kernels give {measured:.2f}x, scaled bytes give {scaled:.1f}x on an H100" in WORDS


def test_encoding_a_prompt_takes_part_of_its_prefill():
    values = 512 * 2 * float(LLAMA.num_layers * LLAMA.num_kv_heads * LLAMA.head_dim)
    prompt = Workload(context_tokens=0.0, prompt_tokens=512.0)
    work = prefill_step(prompt, footprint=uniform_footprint(16)).operators(LLAMA)
    ms = {gpu: 1e3 * float(step_cost(catalog.device(gpu), work).total_s) for gpu in (NPU, "h200-sxm")}
    assert f"take {1e-6 * values:.0f} ms to encode, and a prefill of them {ms[NPU]:.0f} ms" in WORDS
    assert f"on `{NPU}` but {ms['h200-sxm']:.0f} ms on `h200-sxm` (predicted)" in WORDS


@pytest.mark.slow
def test_speedups_with_and_without_a_head_of_its_own():
    """On the page of how it works, at the acceptances of its commands; and what the head takes of a draft step."""
    page = (ROOT / "docs" / "pages" / "how-it-works.md").read_text(encoding="utf-8")
    rows = page[page.index("| priced network | head's share") :].split("\n\n")[0].splitlines()[2:]
    assert len(rows) == 4
    accepted = dict(re.findall(r"--scheme (cassandra1(?:-head)?) --acceptance ([\d.]+)", page))
    footprints = {name: SCHEMES[name].expected_footprint(knob_defaults(SCHEMES[name])) for name in accepted}
    gpu, workload = catalog.device("rtx-4090"), Workload(context_tokens=1024.0)

    @jax.jit
    def found(architecture, footprint, alpha):
        acceptance = Acceptance(conditional=jnp.full(8, alpha))
        priced = speculation_speedup(gpu, architecture, workload=workload, footprint=footprint, acceptance=acceptance)
        read = {"weight_bits": footprint.draft_weight_bits, "kv_bits": footprint.draft_kv_bits}
        step = step_cost(gpu, step_operators(architecture, tokens=1.0, batch=1.0, context_tokens=1024.0, **read))
        return step.operator_s[OPERATORS.index("lm_head")] / step.total_s, best(priced).speedup_vs_bf16_ar

    for row in rows:
        title, *printed = (cell.strip() for cell in row.strip("|").split("|"))
        architecture = catalog.architecture(title.lower().replace(" ", "-"))
        computed = (found(architecture, footprints[s], float(accepted[s])) for s in ("cassandra1", "cassandra1-head"))
        assert printed == [
            text for share, speedup in computed for text in (f"{100 * share:.0f} %", f"{speedup:.2f}x")
        ], title


def container_rows(page, heading):
    """Scheme -> its other cells."""
    rows = page[page.index(heading) :].split("\n\n")[0].splitlines()[2:]
    cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    return {re.match(r"`([\w-]+)`", scheme)[1]: rest for scheme, *rest in cells}


CONTAINERS = container_rows(
    (ROOT / "docs" / "pages" / "containers.md").read_text(encoding="utf-8"), "| scheme | file | target"
)


def test_containers_in_the_readme_are_those_of_their_page():
    readme = container_rows((ROOT / "README.md").read_text(encoding="utf-8"), "| scheme | file | bits per weight")
    assert len(readme) == 6
    for scheme, (megabytes, target, draft, lossless) in readme.items():
        size, *bits, same, _ = CONTAINERS[scheme]
        assert megabytes == f"{int(size.removesuffix(' B').replace(',', '')) / 1e6:.2f} MB", scheme
        assert [target, draft or "none"] == bits, scheme
        assert lossless.split(":")[0] == same.strip("*"), scheme


@pytest.mark.slow
@pytest.mark.parametrize("scheme", CONTAINERS)
def test_containers_are_as_large_as_the_page_says(scheme, tmp_path):
    size, target, draft, lossless, _ = CONTAINERS[scheme]
    packed = pack_checkpoint(PackConfig(scheme=scheme), out=tmp_path / "embedded.jspk")
    # What values are ranked by is a sum, in another order on other processors: near ties may change places.
    assert packed.file_bytes == pytest.approx(int(size.removesuffix(" B").replace(",", "")), rel=1e-4)
    assert packed.target_bits_per_weight.known == pytest.approx(float(target), abs=0.0051)
    bits = packed.draft_bits_per_weight.number
    assert (bits is None) == (draft == "none")
    assert bits is None or bits == pytest.approx(float(draft), abs=0.0051)
    assert packed.lossless == (lossless.strip("*") == "yes")


def card(name):
    return " ".join((embedded_directory(name) / "README.md").read_text(encoding="utf-8").split())


def test_shipped_drafts_agree_as_their_cards_say():
    trees = (ROOT / "docs" / "pages" / "trees.md").read_text(encoding="utf-8")
    for name, words in {"head": "{} at depth 1; {} for all of depths 1 to 5", "small": "{}; {}"}.items():
        said = re.search(r"given, and in ([\d., ]+) together with all before them", card(f"embedded-{name}"))
        assert said
        depths = said[1].split(", ")
        assert f" | {words.format(depths[0], depths[-1])} |" in trees


def test_shipped_networks_are_as_their_cards_say():
    page = " ".join((ROOT / "docs" / "pages" / "embedded-network.md").read_text(encoding="utf-8").split())
    moe, dense, solver, judge = (card(f"embedded{kind}") for kind in ("-moe", "", "-arithmetic", "-judge"))
    score = lambda text: float(re.search(r"Score\.\*\* ([\d.]+) bits per byte", text)[1])
    assert f"{score(moe):.3f} bits per byte on the held-out modules" in page
    assert f"the dense network has {score(dense):.3f} after" in page
    loads = [[float(n) for n in row] for row in re.findall(r"layer \d: ([\d.]+)% to ([\d.]+)%, ([\d.]+) bits", moe)]
    least, most, bits = zip(*loads, strict=True)
    assert f"gets {min(least)} % to {max(least)} % of the bytes" in page
    assert f"most used one {min(most):.0f} % to {max(most):.0f} %" in page
    assert f"choices is {min(bits)} to {max(bits)} of 5 bits" in page
    right = float(re.search(r"([\d.]+)% of the samples end with", solver)[1])
    assert f"{right:.0f} % of its samples are then right" in page
    chosen = float(re.search(r"among 16 in ([\d.]+)%", judge)[1])
    assert f"by probability in {chosen:.0f} %" in page


def test_families_and_configurations_are_counted():
    cases = json.loads((ROOT / "tests" / "hwmodels" / "data" / "parameter_counts.json").read_text(encoding="utf-8"))
    assert f"{len(FAMILIES)} families, and of any other family" in WORDS
    assert f"parameter counts of {len(cases['cases'])} configurations" in WORDS


def test_families_that_run_are_all_on_the_page():
    rows = PAGE[PAGE.index("| family | `model_type` | differences") :].split("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[1])]
    assert len(named) == len(set(named))
    assert {*runnable_families(), *WRAPPERS} <= set(named) <= set(runnable_names())


def test_names_that_the_page_gives_as_examples_are_in_the_catalog():
    examples = WORDS[WORDS.index("Names are those on the Hub") : WORDS.index("Of networks that also see")]
    named = re.findall(r"`([^`]+)`", examples)
    assert named
    assert set(named) <= set(catalog.architecture_names())


def test_a_state_of_linear_attention_is_as_large_as_the_page_says():
    hybrid = catalog.architecture("qwen3.5-27b")
    state, token = float(state_bytes(hybrid)), 2 * float(kv_elements_per_token(hybrid))
    assert f"with its context: {state / 1e6:.0f} MB for Qwen3.5-27B" in WORDS
    layers = float(hybrid.num_layers - hybrid.num_linear_layers)
    assert f"The other {layers:g} of its {hybrid.num_layers:g} layers cache {token / 1e3:.1f} kB per token" in WORDS
    assert f"exceed that from {math.ceil(state / token)} tokens on" in WORDS
