"""Published measurements: reading them, naming what ran, fitting an engine's terms, scoring predictions."""

import csv
import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from experiments.field import predict as pricing
from experiments.field.__main__ import answers
from experiments.field.engines import engine_of
from experiments.field.fit import fit_numbers, group_of, left_out
from experiments.field.networks import draft_of, named_architecture, shape_notes
from experiments.field.predict import Parts, predict
from experiments.field.rows import PUBLISHED, read_rows
from experiments.field.stored import BESIDES, NotPricedError
from experiments.field.summary import summarise
from hwmodels import block_head, catalog, parameters
from hwmodels.network.architecture import weights_per_token
from hwmodels.speculation.engine_logs import EngineTerms
from jaxspec.errors import InputError

PUBLISHED_ROWS = read_rows()


def written(folder, **changes):
    """A file with the first published row, changed."""
    with PUBLISHED.open(encoding="utf-8") as file:
        table = csv.DictReader(file)
        row = next(iter(table)) | changes
    path = folder / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table.fieldnames)
        writer.writeheader()
        writer.writerow(row)
    return path


@pytest.mark.parametrize(
    ("value", "definition", "notes", "expected"),
    [
        ("2.5", "mean_acceptance_length_with_bonus", "", 2.5),
        ("0.5", "accepted_over_drafted", "", 3.0),
        ("50", "accepted_over_drafted", "", 3.0),
        ("0.5", "accepted_over_drafted", "emitted_per_verify_incl_bonus=2.5", 2.5),
        ("0.5", "accepted_over_drafted", "block 5 is a ceiling: mean drafted nearer 3.4", 2.7),
        ("0.5", "alpha_token", "", 1 + 0.5 + 0.25 + 0.125 + 0.0625),
        ("1.25", "mean_accepted_without_bonus", "", 2.25),
        ("", "", "per_position_pct=60/30/10/0", 2.0),
        ("0.5", "something else", "", None),
    ],
)
def test_tokens_per_cycle_from_what_was_published(tmp_path, value, definition, notes, expected):
    path = written(tmp_path, acceptance_value=value, acceptance_definition=definition, notes=notes, draft_length="4")
    assert read_rows(path)[0].tokens_per_cycle == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": "many"}, "batch is 'many'"),
        ({"speedup": "-1"}, "number >= 0"),
        ({"draft_length": "nan"}, "'nan'"),
        ({"device_count": "1.5"}, "device_count is 1.5; it must be a whole number"),
        ({"notes": "tpot_ar_ms=1.2.3"}, "tpot_ar_ms in the notes is '1.2.3'; it must be a number"),
        ({"acceptance_value": "", "notes": "per_position_pct=1..2/50"}, "per_position_pct in the notes is '1..2'"),
        ({"notes": 200_000 * "x"}, "not valid CSV"),
    ],
)
def test_a_bad_cell_is_named(tmp_path, changes, words):
    if "csv" in words.lower():  # of the whole file
        with pytest.raises(InputError, match=words):
            read_rows(written(tmp_path, **changes))
        return
    (row,) = read_rows(written(tmp_path, **changes))
    assert re.search(words, row.unread)
    assert row.unread.startswith("row 2: ")
    assert pricing.price_rows([row]) == [row.unread]


@pytest.mark.paper
def test_a_bad_row_leaves_the_others_of_its_file(tmp_path):
    path = written(tmp_path, batch="many", speedup="-1", draft_kind="n-gram")
    good = PUBLISHED.read_text(encoding="utf-8").splitlines()[2]
    path.write_text(f"{path.read_text(encoding='utf-8')}{good}\nshort,row\n", encoding="utf-8")
    rows = read_rows(path)
    bad, priced, short = pricing.price_rows(rows)
    assert isinstance(priced, Parts)
    many = "row 2: batch is 'many'; it must be a number >= 1"
    assert bad == f"{many}{BESIDES}row 2: speedup is '-1'; it must be a number >= 0.001"
    assert short.startswith("row 4 has fewer cells")
    summary = summarise(rows, answers(rows, [bad, priced, short]))
    assert summary["predicted"] == 1
    assert summary["without_prediction"][many] == 1


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("Qwen3-32B", "qwen3-32b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Meta-Llama-3.3-70B-Instruct-FP8", "llama-3.1-70b"),
        ("Qwen/Qwen2.5-14B-Instruct-AWQ", "qwen2.5-14b"),
        ("lmsys/vicuna-7b-v1.3", "vicuna-7b"),
        ("DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
        ("DeepSeek-R1-Distill-Llama-70B", "llama-3.1-70b"),
        ("Qwen 3 8B", "qwen3-8b"),
        ("unsloth/Qwen3.6-27B-MTP-UD-Q4_K_XL.gguf", "qwen3.5-27b"),
        ("Qwen2.5-VL-7B-Instruct", "qwen2.5-7b"),
        ("Devstral-Small-2507", "mistral-small-24b"),
        ("GLM-4.7-FP8", "glm-4.5"),
        ("amd/PARD-Llama-3.2-1B", "llama-3.2-1b"),
    ],
)
def test_names_of_networks(name, entry):
    assert named_architecture(name) == catalog.architecture(entry)
    assert shape_notes(name) == []


def test_a_dense_network_is_priced_by_the_size_that_its_name_states():
    for name, size in (("Falcon-3-10B", 10e9), ("Yi-34B-Chat", 34e9), ("0.5B draft", 0.5e9)):
        assert sum(map(float, parameters(named_architecture(name)).values())) == pytest.approx(size, rel=0.03)
        assert "as many layers as its size needs" in shape_notes(name)[0]
    for name in ("OLMoE-1B-7B", "Nobody-30B-A3B", "Nobody-8x7B", "Nobody-2000B", "Nobody"):
        with pytest.raises(NotPricedError, match="no architecture"):
            named_architecture(name)


@pytest.mark.parametrize(
    ("changes", "engine"),
    [
        ({"engine": "LM Studio 0.3", "target_precision": "MLX 4bit"}, "mlx"),
        ({"engine": "LM Studio 0.3", "target_precision": "Q4_K_M"}, "llama.cpp-metal"),
        ({"engine": "LM Studio 0.3", "target_precision": "Q4_K_M", "device": "RTX 4090"}, "llama.cpp"),
        ({"engine": "llama-server b9000"}, "llama.cpp-metal"),
        ({"engine": "MTPLX 1.0"}, "mlx"),
    ],
)
def test_files_and_devices_say_whose_kernels_an_engine_has(tmp_path, changes, engine):
    (row,) = read_rows(written(tmp_path, **({"device": "Apple M4 Max 64GB"} | changes)))
    assert engine_of(row.engine).name == engine


@pytest.mark.parametrize(
    ("changes", "layers", "is_block"),
    [
        ({"draft_kind": "Medusa heads (tree)"}, 0, False),
        ({"draft_kind": "PARD", "draft_model": "amd/PARD-Qwen3-0.6B"}, 28, True),
        ({"draft_kind": "NEXTN"}, 1, False),
        ({"draft_kind": "speculative draft", "draft_model": "Qwen3-0.6B"}, 28, False),
        ({"draft_kind": "Sequoia", "draft_model": "Qwen3-0.6B"}, 28, False),
    ],
)
def test_kinds_of_drafts(tmp_path, changes, layers, is_block):
    (row,) = read_rows(written(tmp_path, **changes))
    draft = draft_of(row, named_architecture(row.target))
    assert (float(draft.architecture.num_layers), draft.block) == (layers, is_block)


def test_heads_are_as_large_as_the_released_ones():
    # EAGLE's for Llama-3.1-8B: a layer of 218 million parameters, a projection of 33.5 million; the head is the target's.
    row = next(row for row in PUBLISHED_ROWS if row.id == "V20780-1-k2")
    draft = draft_of(row, named_architecture(row.target))
    counts = {kind: float(count) for kind, count in parameters(draft.architecture).items()}
    assert draft.shares_ends == 1.0
    assert sum(counts.values()) - counts["embed"] - counts["lm_head"] == pytest.approx(218.1e6 + 33.6e6, rel=1e-3)
    eagle3, small = (
        draft_of(next(row for row in PUBLISHED_ROWS if row.id == name), named_architecture(row.target))
        for name in ("V20780-3-k2", "V29334-fr-mt-b")
    )
    assert (draft.maps_logits, eagle3.maps_logits, small.maps_logits) == (0.0, 1.0, 0.0)
    assert float(parameters(small.architecture)["lm_head"]) == pytest.approx(counts["lm_head"] / 4)
    # DFlash's for Qwen3.5: of 4B 540 million parameters, of 27B 3.46 GB in 16 bits; embedding and head are the target's.
    for name, size in (("qwen3.5-4b", 540e6), ("qwen3.5-27b", 3.46e9 / 2.0)):
        own = parameters(block_head(catalog.architecture(name)).architecture)
        assert sum(float(own[kind]) for kind in own if kind not in ("embed", "lm_head")) == pytest.approx(
            size, rel=0.08
        )


TERMS = tuple(field.name for field in dataclasses.fields(EngineTerms))


def made(rows, terms, seed=0):
    """Parts whose kernels explain measured times but for these terms, exactly."""
    rng = np.random.default_rng(seed)
    spent, parts = np.array(dataclasses.astuple(terms)), []
    for row in rows:
        length, prompts = row.draft_length, row.batch * rng.uniform(0.2, 1.0)
        layers, maps = (1.0, float("EAGLE-3" in row.draft_kind)) if "EAGLE" in row.draft_kind else (28.0, 0.0)
        tokens = length * row.batch
        known = {"cycle_s": 1.0, "draft_pass_s": length, "drafted_token_s": tokens, "prompt_weight_s": prompts}
        known |= {"draft_layer_s": layers, "mapped_pass_s": maps * length, "drafted_token_layer_s": tokens * layers}
        cycle = np.array([(known | {"launched_cycle_s": 1.0}).get(name, 0.0) for name in TERMS])
        ar = np.array([row.ar_batch * 0.3 if name == "prompt_weight_s" else 0.0 for name in TERMS])
        parts.append(Parts(row.ar_s - ar @ spent, row.cycle_s - cycle @ spent, ar, cycle, 1.0, "h100-sxm", "made"))
    return parts


def of_vllm():
    return [
        row
        for row in PUBLISHED_ROWS
        if row.source.endswith(("vllm-scripts", "vllm-project/vllm")) and row.device_count == 1
    ]


def test_terms_are_recovered():
    rows = [row for row in of_vllm() if row.ar_s and row.cycle_s]
    planted = {"launched_cycle_s": 4e-4, "prompt_weight_s": 4e-15, "draft_layer_s": 2e-5, "drafted_token_layer_s": 2e-6}
    terms = dataclasses.replace(catalog.engine("vllm"), **planted)
    cells = list(zip(rows, made(rows, terms), strict=True))
    found = fit_numbers(cells, "vllm")
    np.testing.assert_allclose(
        dataclasses.astuple(found.terms["vllm"]), dataclasses.astuple(terms), rtol=1e-3, atol=1e-17
    )
    for row, parts in cells:
        assert predict(row, parts, found.terms["vllm"]).cycle_s == pytest.approx(row.cycle_s, rel=1e-3)


def test_instructions_of_rows_are_recovered_from_other_groups():
    rows = [row for row in PUBLISHED_ROWS if row.engine == "llama.cpp" and row.speedup and row.tokens_per_cycle]
    parts = [
        Parts(
            row.ar_s, row.cycle_s - 2.5 * row.draft_length * 1e-3, np.zeros(11), np.zeros(11), 1.0, "rtx-5090", "a head",
            rows=pricing.RowTimes(0.0, row.draft_length * 1e-3),
        )
        for row in rows
    ]  # fmt: skip
    cells = list(zip(rows, parts, strict=True))
    assert fit_numbers(cells, "llama.cpp").instructions == pytest.approx(2.5)
    for group, one in left_out(cells, "llama.cpp", 9.0).items():
        assert one["instructions"] == pytest.approx(2.5), group
        assert max(one["errors"].values()) < 0.01
    # With nothing else to see them from, those of the engine that most groups are of.
    alone = [cell for cell in cells if group_of(cell[0]) == group_of(rows[0])]
    assert next(iter(left_out(alone, "llama.cpp", 9.0).values()))["instructions"] == 9.0


@pytest.mark.paper
def test_a_file_of_ones_own(tmp_path):
    path = written(tmp_path, device="Cerebras WSE-3")
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "experiments.field", "--rows", str(path), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 of 1 rows predicted" in done.stdout
    (row,) = json.loads(out.read_text())["rows"]
    assert row["why_not"] == "the catalog has no device 'Cerebras WSE-3'"
    assert row["predicted_speedup"] is None
    missing = subprocess.run([*command[:4], str(tmp_path / "none.csv")], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_a_step_without_speculation_gives_the_bandwidth(tmp_path):
    rows = read_rows(written(tmp_path, id="mine", draft_kind="n-gram", draft_length="4"))
    (parts,) = pricing.price_rows(rows)
    assert parts.ar_s == pytest.approx(rows[0].ar_s, rel=1e-3)
    assert 0.6 < parts.bandwidth_scale < 0.8
    # What it was solved from is no prediction, of a time or of anything that is counted as one.
    assert parts.step_given
    (answer,) = answers(rows, [parts])
    assert (answer["status"], answer["ar_status"]) == ("predicted", "input")
    (source,) = summarise(rows, [answer])["sources"].values()
    assert (source["ar_s"]["rows"], source["cycle_s"]["rows"], source["speedup"]["rows"]) == (0, 1, 1)
    slower = [dataclasses.replace(rows[0], id="slower", ar_s=1.1 * rows[0].ar_s, ar_batch=2.0 * rows[0].ar_batch)]
    found = answers(rows + slower, pricing.price_rows(rows + slower))
    assert [one["ar_status"] for one in found] == ["input", "predicted"]
    prompts = 1.72 * 144.5 / 200 * float(weights_per_token(catalog.architecture("qwen3-32b")))
    counted = dict(zip(TERMS, np.asarray(parts.cycle_counts), strict=True))
    of_lookup = {"cycle_s": 1.0, "drafted_token_s": 4.0, "prompt_weight_s": prompts}
    of_lookup |= {"lookup_cycle_s": 1.0, "lookup_sequence_s": 1.0}
    assert counted == pytest.approx(dict.fromkeys(TERMS, 0.0) | of_lookup, rel=1e-5)
    # A lookup drafts for nothing: five rows of a verification cost a little more than one of a step.
    assert parts.ar_s < parts.cycle_s < 1.1 * parts.ar_s


def test_the_shipped_acceptance_is_that_of_the_rows():
    import tomllib

    from experiments.field.acceptance import alpha_token, known_table, published_acceptance
    from jaxspec.studies.given_acceptance import TABLE

    shipped = tomllib.loads(TABLE.read_text())
    assert known_table() == shipped
    assert published_acceptance(PUBLISHED_ROWS).items() <= shipped.items()
    chain = next(row for row in PUBLISHED_ROWS if row.tokens_per_cycle is not None and row.draft_length == 3)
    alpha = alpha_token(chain)
    assert 1 + alpha + alpha**2 + alpha**3 == pytest.approx(chain.tokens_per_cycle, rel=1e-4)


@pytest.mark.device_matrix
def test_a_network_is_a_network_by_any_name(tmp_path):
    """Its interval has the scatter of small networks, also where the row calls it an assistant."""
    widths = []
    for name in ("separate_model", "assistant"):
        rows = read_rows(written(tmp_path, draft_kind=name))
        (answer,) = answers(rows, pricing.price_rows(rows))
        widths.append(answer["high"] / answer["low"])
    assert widths[0] == widths[1]
