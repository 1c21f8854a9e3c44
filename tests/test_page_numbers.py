"""Numbers of the guide that follow from committed files: computed here, so that none stays behind."""

import json
import re
import statistics
import tomllib

import jax
import jax.numpy as jnp
import pytest
from code_blocks import ROOT
from generated import calibrations

from hwmodels import (
    LAYER_MATRICES,
    OPERATORS,
    Acceptance,
    Workload,
    best,
    catalog,
    decode_operators,
    prefill_step,
    speculation_speedup,
    step_cost,
    step_operators,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.catalog.calibrations import LARGEST_ATTENTION_ERROR
from hwmodels.catalog.huggingface import FAMILIES, WRAPPERS
from jaxspec.compress import SCHEMES
from jaxspec.compress.knobs import knob_defaults
from jaxspec.models.embedded import embedded_directory
from jaxspec.models.families import runnable_families, runnable_names

PAGE = (ROOT / "docs" / "pages" / "hardware.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
ADVISE = " ".join((ROOT / "docs" / "pages" / "advise.md").read_text(encoding="utf-8").split())

LLAMA = catalog.architecture("llama-3.1-8b")

#: (GPU, engine) -> what the fits wrote.
FITS = {
    (path.parent.name, path.stem): tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(calibrations.FOLDER.glob("*/*.toml"))
}
LINKS = {
    path.stem: tomllib.loads(path.read_text(encoding="utf-8")).get("measured", {})
    for path in sorted((ROOT / "hwmodels" / "catalog" / "links").glob("*.toml"))
}

#: Engines, and GPUs of a measured table, as the page writes them.
ENGINE_TITLES = {"trtllm": "TensorRT-LLM", "vllm": "vLLM", "sglang": "SGLang", "sglang/0.5.10": "SGLang 0.5.10"}
TABLE_TITLES = {
    "a100_sxm": "A100",
    "b200_sxm": "B200",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX PRO 6000",
}


def percent(share):
    return f"{100 * share:.1f}"


def table_rows(heading):
    """Rows of the page's table with these columns."""
    return set(PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:])


def product_rows():
    for (gpu, engine), record in FITS.items():
        for name, entry in record["formats"].items():
            halves = ", ".join(map(percent, entry["held_out_halves"]))
            largest = percent(entry["errors"]["largest k and n held out"]["mean"])
            roofline = percent(entry["baselines"]["roofline"]["mean"])
            yield f"| {gpu} | {ENGINE_TITLES[engine]} | {name} | {halves} | {largest} | {roofline} |"


def attention_rows():
    for (gpu, engine), record in FITS.items():
        means = [record["attention"].get(name, {"errors": None})["errors"] for name in ("bfloat16", "fp8")]
        shown = [percent(errors["held out"]["mean"]) if errors else "–" for errors in means]
        if means[1] and means[1]["held out"]["mean"] > LARGEST_ATTENTION_ERROR:
            shown[1] += " (not used)"
        prefill = percent(record["prefill"]["errors"]["held out"]["mean"])
        yield f"| {gpu} | {ENGINE_TITLES[engine]} | {' | '.join(shown)} | {prefill} |"


def expert_entries():
    """Each table once, though several engines may use it."""
    return {(e["table"], name): e for record in FITS.values() for name, e in record.get("experts", {}).items()}


def expert_rows():
    for (table, name), entry in expert_entries().items():
        gpu, engine, version = table.removeprefix("aiconfigurator-core ").split("/")
        title = ENGINE_TITLES.get(f"{engine}/{version}", ENGINE_TITLES[engine])
        errors, baselines = entry["errors"], entry["baselines"]
        parts = ("all networks fitted", "networks of 128 experts held out", "even loads, not fitted")
        fitted, large, even = (percent(errors[part]["mean"]) for part in parts)
        halves = ", ".join(map(percent, entry["held_out_halves"]))
        lines = " | ".join(percent(baselines[part]["mean"]) for part in ("roofline", "roofline by a constant"))
        bits = {"bfloat16": "16 bits", "int4_wo": "4 bits"}[name]
        yield f"| {TABLE_TITLES[gpu]}, {title} | {bits} | {fitted} | {halves} | {large} | {even} | {lines} |"


def link_rows():
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    for name, measured in LINKS.items():
        if measured:
            kernels = [measured[engine]["all_reduce"] for engine in ("trtllm", "vllm", "sglang")]
            kernels += [measured["nccl"][kind] for kind in kinds]
            (gpus,) = (line.split(" | ")[1] for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
            yield f"| `{name}` | {gpus} | {' | '.join(percent(k['errors']['held out']['mean']) for k in kernels)} |"


TABLES = {
    "GPU | engine | format | halves | largest held out | roofline": (product_rows, 50),
    "GPU | engine | decoding, 16 bits | decoding, 8 bits | prefill": (attention_rows, 18),
    "table | weights | all fitted | halves | 128 | even loads, not fitted | roofline | roofline, one factor": (
        expert_rows,
        12,
    ),
    "link | GPUs | TensorRT-LLM | vLLM | SGLang | NCCL all-reduce | all-gather | reduce-scatter | all-to-all": (
        link_rows,
        5,
    ),
}


@pytest.mark.parametrize("heading", TABLES)
def test_tables_of_fits_are_as_the_fits_wrote_them(heading):
    rows, least = TABLES[heading]
    computed = list(rows())
    assert len(computed) >= least
    assert set(computed) == table_rows(heading)


def test_experts_held_whole_are_off_as_the_fits_found():
    off = {
        (table.split()[-1].split("/")[0], table.split("/")[1], name): 100
        * e["errors"]["dealt to 8 GPUs, not fitted"]["mean"]
        for (table, name), e in expert_entries().items()
        if "dealt to 8 GPUs, not fitted" in e["errors"]
    }
    of = lambda gpu, engine: f"{off[gpu, engine, 'bfloat16']:.1f} %"
    ours = [f"{of(gpu, 'vllm')} on {TABLE_TITLES[gpu]}" for gpu in ("h100_sxm", "l40s", "rtx_pro_6000_server")]
    assert f"TensorRT-LLM on H200 {of('h200_sxm', 'trtllm')} off, vLLM {of('h200_sxm', 'vllm')} on H200" in WORDS
    assert f"on H200, {ours[0]}, {ours[1]} and {ours[2]}" in WORDS
    assert f"({off['h200_sxm', 'sglang', 'int4_wo']:.0f} % off)" in WORDS


def test_errors_of_experts_by_size_and_rows_left_out():
    by_size = {True: {}, False: {}}  # of the A100, of the others
    for (table, name), entry in expert_entries().items():
        for size, errors in entry["by_range"].items() if name == "bfloat16" else ():
            by_size["a100_sxm" in table].setdefault(size, []).append(errors["mean"])
    between = ("2 to 16", "17 to 64", "65 to 256")
    ends = lambda means: f"{percent(min(means))} to {percent(max(means))} %"
    of = lambda a100, *sizes: ends([mean for size in sizes for mean in by_size[a100][size]])
    assert (
        f"errors are {of(False, *between)} at 2 to 256 tokens, {of(False, '1')} at one token, "
        f"{of(False, '1025 and more')} beyond 1024. On the A100 they are {of(True, *between)} at 2 to 256 tokens"
    ) in WORDS
    h200, h100 = (
        re.search(
            r"(\d+) rows of kernels that fell back", " ".join(FITS[gpu, "trtllm"]["experts"]["bfloat16"]["notes"])
        )
        for gpu in ("h200-sxm", "h100-sxm")
    )
    assert h200
    assert h100
    assert f"({h200[1]} rows on the H200, {h100[1]} on the H100;" in WORDS


def test_intervals_of_links_cover_what_the_fits_found():
    covered = [k["interval"]["covered_left_out"] for m in LINKS.values() for part in m.values() for k in part.values()]
    low, high, mean = 100 * min(covered), 100 * max(covered), 100 * sum(covered) / len(covered)
    assert f"cover {low:.0f} to {high:.0f} % of the rows" in WORDS
    assert f"{mean:.1f} % on average" in WORDS


def test_formats_without_small_matrices_are_counted():
    notes = [note for record in FITS.values() for entry in record["formats"].values() for note in entry["notes"]]
    left_out = sum("their weights came, or may have come, from a cache" in note for note in notes)
    assert f"left out of the fits of {left_out} formats that quantize activations" in WORDS


def test_halves_of_8_bits_are_those_of_the_fits():
    """On the page of errors: column "now", bold above its target."""
    page = (ROOT / "docs" / "pages" / "calibrations.md").read_text(encoding="utf-8")
    rows = page[page.index("| GPU | engine | weights | before |") :].split("\n\n")[0].splitlines()[2:]
    assert len(rows) >= 18
    for row in rows:
        gpu, engine, name, _, _, now, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        mean = statistics.fmean(FITS[gpu, engine]["formats"][name]["held_out_halves"])
        assert float(now.strip("* %")) == pytest.approx(100 * mean, abs=0.051), row
        assert now.startswith("**") == (mean > {"fp8": 0.08, "fp8_block": 0.10}[name]), row


def test_scatter_of_an_engine_is_as_it_was_fitted():
    terms = tomllib.loads((ROOT / "hwmodels" / "catalog" / "engines" / "vllm.toml").read_text(encoding="utf-8"))
    small, heads = (terms[f"scatter_of_{drafts}"]["value"] for drafts in ("small_networks", "other_drafts"))
    assert f"{percent(small)} % with a small network as draft, {percent(heads)} % with heads" in ADVISE


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
    ms = {gpu: 1e3 * float(step_cost(catalog.device(gpu), work).total_s) for gpu in ("cassandra-npu", "h200-sxm")}
    assert f"take {1e-6 * values:.0f} ms to encode, and a prefill of them {ms['cassandra-npu']:.0f} ms" in WORDS
    assert f"on `cassandra-npu` but {ms['h200-sxm']:.0f} ms on `h200-sxm` (predicted)" in WORDS


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
    rows = table_rows("family | `model_type` | differences from Llama's network")
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[1])]
    assert len(named) == len(set(named))
    assert {*runnable_families(), *WRAPPERS} <= set(named) <= set(runnable_names())


def test_names_that_the_page_gives_as_examples_are_in_the_catalog():
    examples = WORDS[WORDS.index("Names are those on the Hub") : WORDS.index("Of networks that also see")]
    named = re.findall(r"`([^`]+)`", examples)
    assert named
    assert set(named) <= set(catalog.architecture_names())
