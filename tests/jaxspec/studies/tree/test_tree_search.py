"""`jaxspec tree` on a tiny untrained network: its numbers against others' ways to them, the proof, resumption."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from finished_runs import attempts, untimed
from tree_study_samples import decode_by_hand

from hwmodels import chain_cycles, read_trace
from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.runs import Reporter
from jaxspec.runs.directory import RunDirectory
from jaxspec.settings import build_config
from jaxspec.studies import TreeConfig, search_tree
from jaxspec.studies.compare.run import price_chains
from jaxspec.studies.tree.result import TreeResult
from jaxspec.studies.tree.stages import begin_tree
from jaxspec.studies.tree.view import chain_in_words, choice_here, figures, tree_headline, tree_tables

#: Half the compiling of two layers.
ONE_LAYER = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=6
)

SMALL = {
    "prompts": 3,
    "prompt_tokens": 12,
    "output_tokens": 16,
    "calibration_prompts": 4,
    "nodes": 6,
    "depth": 3,
    "contexts": "2048,70,32768",
    "context": 700,
}


#: Names of a result's numbers by their status.
STATUSES = {
    "measured": "acceptance accepted cycles lossless same_cycles standard_error timing_s tokens_per_cycle "
    "tokens_per_cycle_counted tokens_per_cycle_gap_in_standard_errors tokens_per_cycle_standard_error",
    "calibrated": "law",
    "input": "decoding footprint knobs model parameters priced_draft search workload",
    "predicted": "ar_bf16_s ar_stored_s best_chain best_tree draft_s effective_performance engine_s fits pays placement "
    "schedule speculate speedup_vs_bf16_ar speedup_vs_stored_ar tokens_per_cycle_predicted tokens_per_s verification_length "
    "verify_s",
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory, some_text):
    directory = tmp_path_factory.mktemp("models") / "one-layer"
    # Layers that add little: greedy text then falls into loops, which it leaves again.
    params = jax.tree.map(lambda x: 0.3 * x if x.ndim > 2 else x, init_params(ONE_LAYER, jax.random.key(3)))
    save_directory(params, ONE_LAYER, directory, max_positions=128)
    return SMALL | {"model": str(directory), "text": str(some_text)}


@pytest.fixture(scope="module")
def config(settings):
    return build_config(TreeConfig, settings, {"device": "rtx-4090,alveo-v80", "draft": "ngram"})


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    results, directory = search_tree(config, out=str(out))
    assert TreeResult.load(directory.path / "result.json") == results
    return [result.plain() for result in results], directory.path


@pytest.fixture(scope="module")
def run(finished, config):
    """The finished run, opened again: all that it computed is at hand."""
    inputs = json.loads((finished[1] / "inputs.json").read_text())
    with RunDirectory("tree", config, inputs=inputs, out=finished[1]) as directory:
        again = begin_tree(config, directory, Reporter())
    return again


def test_entries_are_per_device_and_reread(finished, config):
    entries, path = finished
    assert [entry["device"] for entry in entries] == ["rtx-4090", "alveo-v80"]
    assert json.loads((path / "result.json").read_text()) == entries
    for entry in entries:
        assert [row["context_tokens"] for row in entry["contexts"]] == [70, 700, 2048, 32768]
        assert [row["verification_length"] for row in entry["curve"]] == [2, 3, 4, 5, 6, 7]
        assert entry["status"] == {name: word for word, names in STATUSES.items() for name in names.split()}
        assert entry["workload"]["context_tokens"] == config.context
        assert entry["draft"]["priced_draft"]["architecture"] is None


def test_the_curve_is_what_loops_count_along_the_ranks(finished, run):
    entry, ranks = finished[0][0], np.asarray(run.traces.rank).tolist()
    parent, rank = entry["growth"]["parent"], entry["growth"]["rank"]
    tokens = []
    for size, row in enumerate(entry["curve"], start=1):
        counted = [decode_by_hand(parent[:size], rank[:size], text, SMALL["output_tokens"]) for text in ranks]
        generated, cycles = np.sum(counted, axis=0)
        assert row["tokens_per_cycle"] == pytest.approx(generated / cycles, rel=1e-6)
        tokens.append(generated / cycles)
    assert tokens[-1] > tokens[0]  # the text repeats itself: a case in which trees gain something


def test_the_trace_of_a_run_has_the_cycles_of_chains(finished, run):
    trace = read_trace(finished[1] / "acceptance_trace.jsonl")
    assert trace.drafters == ("ngram",)
    assert trace.prompt_tokens.tolist() == [SMALL["prompt_tokens"]] * SMALL["prompts"]
    found = chain_cycles(trace, np.arange(1, SMALL["depth"] + 1))
    for place, ranks in enumerate(np.asarray(run.traces.rank).tolist()):
        for length in range(1, SMALL["depth"] + 1):
            chain = list(range(-1, length - 1)), [0] * length
            assert found[place, length - 1] == decode_by_hand(*chain, ranks, SMALL["output_tokens"])[1]


@pytest.mark.study
def test_chains_of_a_given_trace_are_priced_alone(finished, settings, tmp_path):
    trace = finished[1] / "acceptance_trace.jsonl"
    given = {"device": "rtx-4090", "draft": "ngram", "acceptance_trace": str(trace)}
    (found,), directory = search_tree(build_config(TreeConfig, settings, given), out=str(tmp_path / "run"))
    tokens = [point.tokens_per_cycle for point in found.curve]
    np.testing.assert_allclose([each.known for each in tokens], read_trace(trace).tokens_per_cycle(SMALL["depth"]))
    assert {each.status for each in tokens} == {"input"}
    assert found.growth.parent == [-1, 0, 1]
    assert found.growth.acceptance.known == [np.mean(read_trace(trace).gained > 1 + place) for place in range(3)]
    for row, measured in zip(found.contexts, finished[0][0]["contexts"], strict=True):
        assert row.verify_s.known == pytest.approx(measured["verify_s"][:3], rel=1e-6)
        assert row.decision.best_tree == row.decision.best_chain
    # Nothing is decoded, so that there is no proof, and the trace is not written again.
    assert found.proof.verification_length.value is None
    assert found.statement.startswith("acceptance counted along 3 requests of all data sets in ")
    assert "proof: none, since nothing was decoded" in tree_tables([found])[0].caption.plain
    assert not (directory.path / "acceptance_trace.jsonl").exists()
    assert set(figures(found, None)) >= {"contexts", "curve"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"drafter": "x"}, "drafter would have no effect: no acceptance_trace came"),
        ({"acceptance_trace": "t", "search": "width"}, "search would have no effect: the trace says what chains gain"),
        ({"acceptance_trace": "nowhere.jsonl"}, "trace 'nowhere.jsonl' cannot be read"),
    ],
)
def test_a_trace_that_cannot_be_taken_is_refused(settings, given, said, tmp_path):
    with pytest.raises(InputError, match=said):
        search_tree(build_config(TreeConfig, settings, given), out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.study
def test_the_best_chain_is_that_of_another_way_to_price_chains(finished, run):
    ranks, lengths = np.asarray(run.traces.rank).tolist(), range(1, SMALL["depth"] + 1)
    counted = [
        np.sum([decode_by_hand(range(-1, n - 1), [0] * n, text, SMALL["output_tokens"]) for text in ranks], axis=0)
        for n in lengths
    ]
    tokens = np.array([generated / cycles for generated, cycles in counted])
    for result, entry in zip(TreeResult.load(finished[1] / "result.json"), finished[0], strict=True):
        pricing = run.work.pricings[entry["device"]]
        for row in entry["contexts"]:
            load = pricing.workload.replace(context_tokens=float(row["context_tokens"]))
            case = pricing.replace(workload=load, footprint=run.widths, draft=run.cost_on(entry["device"]))
            priced = price_chains(case, len(lengths))
            speed, found = tokens / priced.cycle_s[1:], row["decision"]["best_chain"]
            assert found["tokens_per_s"] == pytest.approx(speed.max(), rel=1e-5)
            assert found["verification_length"] == np.argmax(speed) + 2
            assert found["speedup_vs_stored_ar"] == pytest.approx(speed.max() * row["ar_stored_s"], rel=1e-5)
        own = choice_here(result)
        words = chain_in_words(result)
        slower = own.best_tree.tokens_per_s.value <= own.best_chain.tokens_per_s.value
        assert words.startswith("no tree beats a chain") == slower
        assert words in (finished[1] / "report.html").read_text()


def test_every_cycle_of_decoding_is_foretold(finished, run):
    for entry in finished[0]:
        proof = entry["proof"]
        assert proof["tokens_per_cycle_counted"] == proof["tokens_per_cycle_predicted"]
        assert proof["same_cycles"]
        (row,) = [row for row in entry["curve"] if row["verification_length"] == proof["verification_length"]]
        assert row["tokens_per_cycle"] == pytest.approx(proof["tokens_per_cycle_counted"], rel=1e-6)
        lossless = {"prompts": 3, "tokens": 48, "mismatches": 0}
        assert {key: entry["lossless"][key] for key in lossless} == lossless
        # Cycles that accept a node also accept all above it, and each accepted node is a token.
        nodes = proof["verification_length"] - 1
        shares, parent = proof["accepted"], entry["growth"]["parent"][:nodes]
        assert all(above < 0 or shares[above] >= share for share, above in zip(shares, parent))
        assert 1 + sum(shares) == pytest.approx(proof["tokens_per_cycle_counted"])


def test_decisions_follow_from_times_and_tokens(finished):
    for entry in finished[0]:
        tokens = np.array([row["tokens_per_cycle"] for row in entry["curve"]])
        for row in entry["contexts"]:
            speed = tokens / (np.array(row["verify_s"]) + np.array(row["draft_s"]))
            plain_s = min(row["ar_bf16_s"], row["ar_stored_s"])
            best, found = int(np.argmax(speed)), row["decision"]
            assert found["speculate"] == (speed[best] * plain_s > 1)
            assert found["verification_length"] == (best + 2 if found["speculate"] else 1)
            taken = speed[best] if found["speculate"] else 1 / plain_s
            assert found["tokens_per_s"] == pytest.approx(taken, rel=1e-5)
            assert found["speedup_vs_bf16_ar"] == pytest.approx(taken * row["ar_bf16_s"], rel=1e-5)
            assert found["speedup_vs_stored_ar"] == pytest.approx(taken * row["ar_stored_s"], rel=1e-5)


@pytest.mark.study
def test_that_no_tree_pays_is_an_answer(settings, tmp_path):
    # 4096 sequences keep the arithmetic units busy with one token each: more tokens take as much longer.
    given = {"draft": "ngram", "batch": 4096, "context": 64, "contexts": "70,80,90"}
    (result,), _ = search_tree(build_config(TreeConfig, settings, given), out=str(tmp_path / "batch"))
    entry = result.plain()
    assert not entry["pays"]
    assert "do not speculate" in tree_headline(result)
    assert entry["proof"]["verification_length"] == 7  # the largest tree
    assert entry["schedule"]["entries"] == [{"from_context_tokens": 64, "verification_length": 1}]
    for row in entry["contexts"]:
        assert row["decision"]["verification_length"] == 1
        assert row["decision"]["best_tree"]["speedup_vs_stored_ar"] < 1


@pytest.mark.study
def test_a_run_stopped_at_any_stage_ends_with_the_same_result(finished, config, tmp_path):
    assert attempts(partial(search_tree, config, out=str(tmp_path / "stopped")), 2) > 2
    assert untimed(tmp_path / "stopped") == untimed(finished[1])


@pytest.mark.study
def test_a_compressed_copy_drafts_and_sampling_is_within_its_error(finished, settings, tmp_path):
    given = {"temperature": 0.7, "search": "greedy", "weight_prune": 0.3, "contexts": "700", "nodes": 2}
    entries, _ = search_tree(build_config(TreeConfig, settings, given), out=str(tmp_path / "self"))
    entry = entries[0].plain()
    assert entry["proof"]["tokens_per_cycle_gap_in_standard_errors"] < 3
    assert entry["lossless"]["mismatches"] == 0
    assert entry["law"] is None  # two lengths are not three points
    assert entry["schedule"]["generation"] is None  # nor one context a way
    bits = entry["draft"]["footprint"]
    assert bits["draft_weight_bits"]["q"] < bits["target_weight_bits"]["q"] < 16
    assert bits["draft_weight_bits"]["lm_head"] == 16
    assert "a compressed copy of llama-3.1-8b" in entry["draft"]["priced_draft"]["statement"]
