"""`jaxspec serve` on a small network: what it says, and what it refuses."""

import csv
import tracemalloc

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.settings import build_config
from jaxspec.studies import ServeConfig, serve
from jaxspec.studies.serve import run as serve_run
from jaxspec.studies.serve.run import read_trace
from jaxspec.studies.serve.view import points

SMALL = {
    "architecture": "qwen2.5-7b",
    "scheme": "bf16",
    "draft_architecture": "qwen2.5-0.5b",
    "requests": 40,
    "prompt_tokens": 30,
    "output_tokens": 12,
    "max_batch": 4,
    "chunk_tokens": 64,
    "draft_length": 2,
    "seed": 3,
}


def served(directory, **settings):
    """Results of a run in its own directory."""
    return serve(build_config(ServeConfig, settings), out=str(directory / "served"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return served(tmp_path_factory.mktemp("run"), **SMALL, acceptance=0.9)


@pytest.fixture(scope="module")
def result(run):
    ((found,), _) = run
    return found


def of(result, decoding, name):
    return np.array([getattr(row, name).known for row in result.rows if row.decoding == decoding])


@pytest.mark.study
def test_a_cheap_draft_that_is_often_right(result):
    assert [row.decoding for row in result.rows] == ["autoregressive"] * 9 + ["fixed"] * 9 + ["by_batch"] * 9
    rates = of(result, "fixed", "rate_per_s")
    assert np.all(np.diff(rates) > 0)
    # Crowding costs latency and gives throughput, and none exceeds what a full engine does.
    for decoding in ("autoregressive", "fixed"):
        assert of(result, decoding, "request_p50_s")[-1] > of(result, decoding, "request_p50_s")[0]
        assert of(result, decoding, "tokens_per_s")[-1] > of(result, decoding, "tokens_per_s")[0]
        assert np.all(of(result, decoding, "mean_batch") <= 4)
        assert np.all(of(result, decoding, "ttft_p99_s") >= of(result, decoding, "ttft_p50_s"))
    # The draft is a fifteenth of the target: a step in the empty engine gives 2.71 tokens instead of one.
    ratio = of(result, "autoregressive", "tpot_p50_s")[0] / of(result, "fixed", "tpot_p50_s")[0]
    assert 1.8 < ratio < 2.8
    assert result.pays.known
    assert rates[0] in result.crossings[0].pays_at.known
    columns = points(result)
    assert columns["rate_per_s"][9:18] == list(rates)
    assert len(columns) == 16
    assert {len(values) for values in columns.values()} == {27}


def written(path, lines):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    return str(path)


HEAD = ["arrival_s", "prompt_tokens", "output_tokens"]


@pytest.mark.study
def test_a_trace(tmp_path):
    rows = [[f"{5 + place / 3}", 20 + place % 5, 4 + place % 3] for place in range(30)]
    trace = written(tmp_path / "t.csv", [[*HEAD, "user"], *([*row, "x"] for row in rows)])
    few = {name: value for name, value in SMALL.items() if name not in ("requests", "prompt_tokens", "output_tokens")}
    ((found,), _) = served(tmp_path, **few, trace=trace)
    assert of(found, "fixed", "rate_per_s") == pytest.approx([3.0])
    assert found.workload.requests.value == 30
    assert list(found.inputs) == ["t.csv"]
    odd = tmp_path / "odd.csv"  # empty lines before and between, fields too many without a value, other ends of lines
    odd.write_bytes(b"\r\n" + (tmp_path / "t.csv").read_bytes().replace(b",x\r\n", b",x,\r\n,,\r\n"))
    np.testing.assert_array_equal(read_trace(str(odd)).arrival_s, read_trace(trace).arrival_s)
    marked = tmp_path / "marked.csv"  # as spreadsheets write it
    marked.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "t.csv").read_bytes())
    np.testing.assert_array_equal(read_trace(str(marked)).arrival_s, read_trace(trace).arrival_s)
    with pytest.raises(InputError, match="requests would have no effect: the trace has the requests"):
        ServeConfig(trace=trace, requests=40)


@pytest.mark.study
def test_a_long_trace_is_read_row_by_row_and_once_for_all_devices(tmp_path, monkeypatch):
    rows = 5_000
    trace = written(tmp_path / "t.csv", [HEAD, *([f"{place / 3}", 20, 4] for place in range(rows))])
    read_trace(trace)
    tracemalloc.start()
    found = read_trace(trace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150 * rows  # all its rows as lists of texts: ten times that
    times = []
    monkeypatch.setattr(serve_run, "read_trace", lambda path: times.append(path) or found)
    config = ServeConfig(trace=trace, device=("rtx-4090", "h100-sxm"))
    assert list(serve_run._parts_of_all(config)) == ["rtx-4090", "h100-sxm"]
    assert times == [trace]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "has no column arrival_s, prompt_tokens, output_tokens"),
        ([HEAD[:2], ["0", "1"]], "has no column output_tokens"),
        ([HEAD, ["0", "1", "1"]], "has 1 requests; give at least two"),
        ([HEAD, ["0", "1", "1"], ["1", "x", "1"]], "line 3: '1,x,1' is no request"),
        ([HEAD, ["0", "1", "1"], ["1", "1"]], "line 3"),
        ([HEAD, ["0", "1", "1"], ["nan", "1", "1"]], "line 3"),
        ([HEAD, ["0", "0", "1"], ["1", "1", "1"]], "whole numbers of 1 to"),
        ([HEAD, ["0", "1.5", "1"], ["1", "1", "1"]], "whole numbers of 1 to"),
        ([HEAD, ["2", "1", "1"], ["1", "1", "1"]], "line 3: a request comes at 1 s, before the one above at 2 s; sort"),
        ([HEAD, ["0", "1", "1"], [], ["9", "1", "1"], ["8", "1", "1"]], "line 5: a request comes at 8 s"),
        ([HEAD, ["0", "1", "1"], ["1", "1", "024", "1"]], "line 3: '1,1,024,1' has 4 fields for 3 columns"),
        ([[";".join(HEAD)], ["0;1;1"]], "its first line is 'arrival_s;prompt_tokens;output_tokens' and must name"),
        ([HEAD, ["2", "1", "1"], ["2", "1", "1"]], "its requests come within 0 s; allowed is 1e-06 to 1e+07 s"),
        ([HEAD, ["0", "1", "1"], ["1e-300", "1", "1"]], "its requests come within 1e-300 s"),
        ([HEAD, ["0", "1", "1"], ["1e300", "1", "1"]], "its requests come within 1e+300 s"),
        ([[*HEAD, HEAD[0]], ["0", "1", "1", "5"], ["1", "1", "1", "5"]], "has column arrival_s 2 times"),
    ],
)
def test_damaged_traces_are_refused_in_one_line(tmp_path, lines, says):
    with pytest.raises(InputError) as refusal:
        served(tmp_path, trace=written(tmp_path / "t.csv", lines))
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rates": (2.0, 1.0)}, "rates is 2,1; give them in increasing order"),
        ({"acceptance": (0.5, 0.4), "draft_length": 3}, "acceptance has 2 positions"),
        ({"draft_architecture": "own"}, "architecture 'own' needs a network"),
        ({"trace": "absent.csv"}, "trace 'absent.csv' cannot be read"),
        ({"architecture": "llama-3.1-70b", "scheme": "bf16"}, "has room for the keys and values of 0 tokens"),
        ({"prompt_tokens": 500_000}, "give shorter prompts and outputs"),
        ({"draft_architecture": "llama-9"}, "unknown architecture 'llama-9'"),
        # 136,916 tokens fit each of two replicas: together they hold no longer request.
        (
            {"architecture": "llama-3.1-8b", "device": "rtx-4090", "scheme": "cassandra1", "data_parallel": 2}
            | {"prompt_tokens": 200_000, "prompt_variation": 0.0},
            "136,916 tokens beside the weights in a replica",
        ),
    ],
)
def test_bad_settings(settings, says, tmp_path):
    with pytest.raises(InputError, match=says):
        served(tmp_path, **settings)
    assert not (tmp_path / "served").exists()
