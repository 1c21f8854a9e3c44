"""Logs of engines as they write them, one case a form; what each must give is worked out beside it."""

import json

import numpy as np
import pytest

from hwmodels import Acceptance, EngineLogError, read_engine_log, tokens_per_cycle

VLLM = (
    "(APIServer pid=7) INFO 05-01 14:24:50 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {mean}, Accepted "
    "throughput: 8.90 tokens/s, Drafted throughput: 97.50 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
    "Per-position acceptance rate: {shares}, Avg Draft acceptance rate: 9.1%"
)
OLDEST_VLLM = (
    "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.598, Number "
    "of speculative tokens: 3, Number of accepted tokens: {}, Number of draft tokens: {}, Number of emitted tokens: {}."
)
SGLANG = (
    "[2025-12-04 20:35:53] Decode batch. #running-req: {}, #token: 3894, token usage: 0.00, accept len: {}, accept rate: 0.25, "
    "cuda graph: True, gen throughput (token/s): 5452.63, #queue-req: 0,"
)
LLAMA = (
    "4.01 I slot print_timing: id  0 | task 0 | draft acceptance = {} ( {} accepted /  {} generated), mean len =  {}"
)
LLAMA_OLD = "slot print_timing: id  3 | task 0 | draft acceptance rate = 0.37500 (    3 accepted /     8 generated)"
STATISTICS = (
    "{} I statistics {}: #calls(b,g,a) = 1 4 4, #gen drafts = {}, #acc drafts = 2, #gen tokens = {}, #acc tokens = {}"
)

#: The head of a published log: 2.82 tokens per cycle, and 2.26 if these were conditional rates.
PRINTED = (0.757, 0.491, 0.303, 0.157, 0.074, 0.025, 0.009)


@pytest.fixture
def log(tmp_path):
    def write(*lines: str) -> str:
        path = tmp_path / "engine.log"
        path.write_text("\n".join(["INFO starting", *lines, "INFO: 127.0.0.1 POST /v1 200"]), encoding="utf-8")
        return str(path)

    return write


def test_shares_that_vllm_prints_give_its_own_mean_length(log):
    shares = ", ".join(map(str, PRINTED))
    found = Acceptance.from_engine_log(log(f"Mean acceptance length: 2.82, Per-position acceptance rate: {shares}"))
    assert tokens_per_cycle(found.conditional)[-1] == pytest.approx(2.816, abs=1e-5)
    assert tokens_per_cycle(np.array(PRINTED))[-1] == pytest.approx(2.260, abs=1e-3)


def test_lines_of_vllm_are_weighted_by_their_cycles(log):
    # 60 + 24 accepted in 100 cycles, then 9 + 6 in 10: together 69 and 30 of 110.
    found = read_engine_log(
        log(
            VLLM.format(mean="1.84", accepted=84, drafted=200, shares="0.600, 0.240"),
            VLLM.format(mean="2.50", accepted=15, drafted=20, shares="0.900, 0.600"),
        )
    )
    np.testing.assert_allclose(found.shares, [69 / 110, 30 / 110], rtol=1e-12)
    assert (found.draft_length, found.cycles, found.lines) == (2, pytest.approx(110), 2)


def test_a_line_without_acceptance_counts_its_cycles(log):
    # Nothing accepted in 30 / 2 = 15 cycles, then 12 and 3 in 15.
    found = read_engine_log(
        log(
            VLLM.format(mean="1.00", accepted=0, drafted=30, shares="0.000, 0.000"),
            VLLM.format(mean="2.00", accepted=15, drafted=30, shares="0.800, 0.200"),
        )
    )
    np.testing.assert_allclose(found.shares, [0.4, 0.1])


def test_a_position_counts_the_cycles_that_draft_so_far(log):
    # 10 cycles of two tokens: 5 and 3 accepted; 10 of one: 9. Reached: 20 and 5, so 14 / 20 and then 3 / 5 of it.
    found = read_engine_log(
        log(
            VLLM.format(mean="1.80", accepted=8, drafted=20, shares="0.500, 0.300"),
            VLLM.format(mean="1.90", accepted=9, drafted=10, shares="0.900"),
        )
    )
    np.testing.assert_allclose(found.shares, [0.7, 0.7 * 0.6])


def test_versions_of_vllm_before_the_bonus_token_are_read(log):
    found = read_engine_log(log(VLLM.format(mean="0.84", accepted=84, drafted=200, shares="0.600, 0.240")))
    assert found.tokens_per_cycle == pytest.approx(1.84)


def test_a_line_broken_in_three_is_one_line(log):
    found = read_engine_log(
        log(
            "SpecDecoding metrics: Mean acceptance length: 2.77,",
            "Accepted: 626 tokens, Drafted: 1062 tokens,",
            "Per-position acceptance rate: 0.802, 0.551, 0.415,",
        )
    )
    assert found.lines == 1
    assert found.cycles == pytest.approx(626 / 1.768)


def test_the_oldest_vllm_is_read_by_emitted_tokens_at_its_end(log):
    # Since the start: 13311 / 3 cycles. Its acceptance rate of 0.642 would give 2.93.
    found = read_engine_log(log(OLDEST_VLLM.format(100, 300, 200), OLDEST_VLLM.format(8547, 13311, 10616)))
    assert found.tokens_per_cycle == pytest.approx(10616 / 4437)
    assert (found.draft_length, found.cycles) == (3, 4437)


def test_counts_that_begin_anew_are_added(log):
    found = read_engine_log(log(OLDEST_VLLM.format(10, 300, 150), OLDEST_VLLM.format(10, 30, 12)))
    assert found.tokens_per_cycle == pytest.approx((150 + 12) / (100 + 10))


def test_lines_of_sglang_are_weighted_by_running_requests(log):
    path = log(SGLANG.format(48, "1.50"), "Prefill batch. #new-seq: 1, #running-req: 4", SGLANG.format(16, "2.50"))
    found = read_engine_log(path, 3)
    assert (found.tokens_per_cycle, found.draft_length, found.cycles) == (pytest.approx(1.75), 3, None)


def test_sglang_prints_its_draft_length_when_it_starts(log):
    arguments = "server_args=ServerArgs(model_path='m', speculative_num_steps=3, speculative_num_draft_tokens=4)"
    path = log(arguments, SGLANG.format(48, "1.50"))
    assert read_engine_log(path).draft_length == 3
    with pytest.raises(EngineLogError, match="has 3 drafted tokens per cycle, and draft_length is 4; leave it out"):
        read_engine_log(path, 4)
    assert read_engine_log(path, 4, strict=False).draft_length == 3


def test_llama_cpp_tells_its_draft_length_by_counts(log):
    # 5995 / 3.30 cycles, each of which drafted 5.00 tokens.
    found = read_engine_log(log(LLAMA.format("0.65959", 5995, 9089, "4.30")))
    assert (found.tokens_per_cycle, found.draft_length) == (4.3, 5.0)


def test_drafts_of_unequal_lengths_keep_their_mean(log):
    # 191 / 12.73 cycles of 44.99 tokens, within rounding; of 100 / 2.00 cycles of 3.60 tokens not.
    assert read_engine_log(log(LLAMA.format("0.28296", 191, 675, "13.73"))).draft_length == 45
    assert read_engine_log(log(LLAMA.format("0.55556", 100, 180, "3.00"))).draft_length == pytest.approx(3.6)


def test_positions_of_llama_cpp_are_on_a_line_of_their_own(log):
    found = read_engine_log(
        log(
            LLAMA.format("0.64479", 167, 259, "2.92"),
            "slot print_timing: id  0 | task 0 |      acc per pos = (0.805, 0.632, 0.483)",
            STATISTICS.format("0.06.896.057", "draft-eagle3", 87, 259, 167) + ", #acc rate/pos = (0.805, 0.632, 0.483)",
        )
    )
    assert found.shares == (0.805, 0.632, 0.483)
    assert found.lines == 1  # the count since the start has the same request


def test_older_llama_cpp_is_read_by_its_counts_since_the_start(log):
    path = log(
        LLAMA_OLD,
        STATISTICS.format("1.40", "ngram-mod", 2, 8, 3),
        STATISTICS.format("1.40", "draft-mtp", 10, 40, 15),
        STATISTICS.format("1.50", "ngram-mod", 3, 12, 4),
        STATISTICS.format("1.50", "ngram-map-k", 0, 0, 0),
    )
    found = read_engine_log(path)
    assert found.tokens_per_cycle == pytest.approx(1 + 19 / 13)
    assert (found.draft_length, found.cycles) == (4, 13)


def test_a_fraction_alone_asks_for_the_draft_length(log):
    with pytest.raises(EngineLogError, match="not how many each cycle drafts; give draft_length as well"):
        read_engine_log(log(LLAMA_OLD))
    # 8 drafted tokens in 4 cycles of two, of which 3 accepted.
    assert read_engine_log(log(LLAMA_OLD), 2).tokens_per_cycle == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["hello"], "has no line of speculative decoding; give a log of vLLM"),
        (
            [VLLM.format(mean="2.10", accepted=9, drafted=20, shares="0.5, 0.6")],
            "line 2: the shares .* rise or exceed 1",
        ),
        (
            [VLLM.format(mean="2.80", accepted=9, drafted=20, shares="0.6, 0.5")],
            "line 2: shares of cycles add up to 2.100",
        ),
        ([SGLANG.format(4, "5.50")], "line 2: 5.5 tokens per cycle came with 2 drafted tokens; possible are 1 to 3"),
        ([SGLANG.format(4, "0.00")], "all 0"),
        ([VLLM.format(mean="2.10", accepted=9, drafted=20, shares="0.6, nan")], "line 2: .* 0.6, nan"),
        ([VLLM.format(mean="nan", accepted=9, drafted=20, shares="0.6, 0.5")], "line 2: .* nan' is where a number"),
        ([VLLM.format(mean="2.10", accepted=9, drafted=20, shares="-0.6, 0.5")], "line 2"),
    ],
)
def test_lines_that_no_engine_writes_are_refused(log, lines, said):
    with pytest.raises(EngineLogError, match=said):
        read_engine_log(log(*lines), 2)


def test_seconds_without_drafts_do_not_count(log):
    counted = VLLM.format(mean="2.00", accepted=15, drafted=30, shares="0.800, 0.200")
    idle = VLLM.format(mean="nan", accepted=0, drafted=0, shares="nan, nan")
    assert read_engine_log(log(counted, idle)) == read_engine_log(log(counted))


def test_a_log_that_is_absent_is_one_line():
    with pytest.raises(EngineLogError, match=r"cannot be read .* give the log of an engine"):
        read_engine_log("nowhere.log")


def of_vllm(histogram, **changed) -> dict:
    """A response as vLLM documents it; "summary", and drafts of as many tokens as the histogram has entries behind 0."""
    cycles, accepted = sum(histogram), sum(place * count for place, count in enumerate(histogram))
    length = len(histogram) - 1
    counts = {
        "mean_acceptance_length": 1 + accepted / cycles,
        "acceptance_histogram": histogram,
        "num_spec_steps": cycles,
    }
    counts |= {"num_accepted_draft_tokens": accepted, "num_draft_tokens": cycles * length, "num_spec_tokens": length}
    return {"choices": [{"text": "accept len: 9"}], "metrics": {"speculative_decoding": counts | changed}}


#: A request of SGLang, as a pull request shows it: 43 cycles of 5 drafted tokens, 63 accepted, 106 tokens.
OF_SGLANG = {"spec_accept_rate": 0.293, "spec_accept_length": 2.4651162790697674, "spec_num_correct_drafts": 63}
OF_SGLANG |= {"spec_num_proposed_drafts": 215, "spec_verify_ct": 43, "completion_tokens": 106}
HISTOGRAM = {"spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3]}


def test_responses_of_vllm_are_pooled_over_cycles(log):
    silent = {"metrics": {"speculative_decoding": None}}
    rows = [of_vllm([39, 1, 0, 3]), silent, of_vllm([0, 0, 0, 7]), of_vllm([1, 2, 0, 0])]
    found = read_engine_log(log(*map(json.dumps, rows)))
    # 40, 3, 0, 10 of 53 cycles accept 0, 1, 2, 3 tokens.
    np.testing.assert_allclose(found.shares, np.array([13, 10, 10]) / 53, rtol=1e-12)
    assert (found.cycles, found.draft_length, found.lines) == (53, 3, 3)
    assert found.tokens_per_cycle == pytest.approx(1 + 33 / 53)


@pytest.mark.parametrize(
    "placed", [lambda c: {"text": "", "meta_info": c}, lambda c: c, lambda c: [{"meta_info": c}] * 2]
)
def test_requests_of_sglang_are_read_wherever_they_are(log, placed):
    found = read_engine_log(log(json.dumps(placed(OF_SGLANG | HISTOGRAM))))
    np.testing.assert_allclose(found.shares, np.array([32, 18, 7, 3, 3]) / 43, rtol=1e-12)
    assert found.tokens_per_cycle == pytest.approx(106 / 43)
    assert found.cycles % 43 == 0


def test_a_request_in_the_log_of_sglang_is_read(log):
    result = {"meta_info": OF_SGLANG | HISTOGRAM}
    line = f"[2025-10-02 23:42:16] Finish: obj=GenerateReqInput(rid='5', stream=True), out={result}"
    assert read_engine_log(log(line)).cycles == 43


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (of_vllm([3, 1], num_spec_steps=5), "counts 4 cycles and 1 accepted tokens, and the request has 5 and 1"),
        (
            of_vllm([3, 1], num_accepted_draft_tokens=2),
            "counts 4 cycles and 1 accepted tokens, and the request has 4 and 2",
        ),
        (of_vllm([3, 1], num_draft_tokens=-4), "counts of a request are no whole numbers from 0"),
        (of_vllm([3, 1], acceptance_histogram={"0": 3, "1": 1}), "counts of a request are no whole numbers from 0"),
        ({"acceptance_rate": 0.5, "choices": []}, "has no line of speculative decoding"),
    ],
)
def test_a_response_that_contradicts_itself_is_refused(log, row, said):
    with pytest.raises(EngineLogError, match=said):
        read_engine_log(log(json.dumps(row)))
