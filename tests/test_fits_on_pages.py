"""Numbers of the guide that the catalog's fits hold: computed here, so that none stays behind."""

import re
import statistics
import tomllib

import pytest
from code_blocks import ROOT
from generated import calibrations

from hwmodels.catalog.calibrations import SCALED

PAGE = (ROOT / "docs" / "pages" / "hardware.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
ERRORS = (ROOT / "docs" / "pages" / "calibrations.md").read_text(encoding="utf-8")
ADVISE = " ".join((ROOT / "docs" / "pages" / "advise.md").read_text(encoding="utf-8").split())

#: (GPU, engine) -> what the fits wrote.
FITS = {
    (path.parent.name, path.stem): tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(calibrations.FOLDER.glob("*/*.toml"))
}
LINKS = {
    path.stem: tomllib.loads(path.read_text(encoding="utf-8")).get("measured", {})
    for path in sorted((ROOT / "hwmodels" / "catalog" / "links").glob("*.toml"))
}

#: GPUs of a measured table, as the page writes them.
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


def expert_entries():
    """Each table that numbers are fitted to once, though several engines may use it."""
    found = [(name, e) for record in FITS.values() for name, e in record.get("experts", {}).items()]
    return {(e["table"], name): e for name, e in found if "judged_on" not in e}


def link_rows():
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    for name, measured in LINKS.items():
        if measured:
            kernels = [measured[engine]["all_reduce"] for engine in ("trtllm", "vllm", "sglang")]
            kernels += [measured["nccl"][kind] for kind in kinds]
            (gpus,) = (line.split(" | ")[1] for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
            yield f"| `{name}` | {gpus} | {' | '.join(percent(k['errors']['held out']['mean']) for k in kernels)} |"


def test_errors_of_links_are_as_the_fits_wrote_them():
    computed = list(link_rows())
    assert len(computed) == 5
    heading = "link | GPUs | TensorRT-LLM | vLLM | SGLang | NCCL all-reduce | all-gather | reduce-scatter | all-to-all"
    assert set(computed) == table_rows(heading)


def ends(shares):
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"


def test_ranges_of_held_out_errors():
    """The tables themselves are generated on the page of errors."""
    products = {(gpu, engine, name): e for (gpu, engine), r in FITS.items() for name, e in r["formats"].items()}
    rooflines = [e["baselines"]["roofline"]["mean"] for e in products.values()]
    worst = products.pop(("h100-sxm", "sglang", "int8_wo"))
    halves = [share for e in products.values() for share in e["held_out_halves"]]
    assert f"a fit had not seen are {ends(halves)}, where data-sheet rates err by {ends(rooflines)}" in WORDS
    assert f"8-bit weights on the H100: {100 * statistics.fmean(worst['held_out_halves']):.0f} %)" in WORDS
    decoding = [e["errors"]["held out"]["mean"] for record in FITS.values() for e in record["attention"].values()]
    prefill = [record["prefill"]["errors"]["held out"]["mean"] for record in FITS.values()]
    assert f"held out are {ends(decoding)} in decoding and {ends(prefill)} in prefill" in WORDS
    experts = {packed: [] for packed in (True, False)}
    for (_, name), entry in expert_entries().items():
        experts[name == "w4a16_mxfp4"].append((entry["held_out_halves"], entry["baselines"]["roofline"]["mean"]))
    (packed, slow), (wider, slower) = (
        (ends([share for halves, _ in found for share in halves]), ends([line for _, line in found]))
        for found in (experts[True], experts[False])
    )
    assert f"networks held out are {wider}, those of rooflines {slower} (MXFP4: {packed}, and {slow};" in WORDS
    lent = {(gpu, engine): e for (gpu, engine), r in FITS.items() for e in r["experts"].values() if "judged_on" in e}
    scaled = ends([e["baselines"][SCALED]["mean"] for e in lent.values()])
    off = {key: e["errors"]["all rows, held out"]["mean"] for key, e in lent.items()}
    assert f"(H100 with TensorRT-LLM, {percent(off.pop(('h100-sxm', 'trtllm')))} % off)" in WORDS
    assert f"({ends(off.values())} off on H100, H200 and L40S)" in WORDS
    assert f"Bytes of 16 bits scaled would be {scaled} off" in WORDS


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


def test_what_the_page_concludes_from_fits():
    off = {
        (gpu, engine, name): statistics.fmean(entry["held_out_halves"])
        for (gpu, engine), record in FITS.items()
        for name, entry in record["formats"].items()
    }
    above = lambda kind, bar: {(gpu, engine) for (gpu, engine, name), e in off.items() if name == kind and e > bar}
    assert "With vLLM on B200 and with SGLang on H200 and RTX PRO 6000 their errors are still above 8 %" in WORDS
    assert above("fp8", 0.08) == {("b200-sxm", "vllm"), ("h200-sxm", "sglang"), ("rtx-pro-6000", "sglang")}
    assert (
        f"FP8 in blocks is within 10 %, but for SGLang's on the H200 ({percent(off['h200-sxm', 'sglang', 'fp8_block'])} %)"
        in WORDS
    )
    assert above("fp8_block", 0.10) == {("h200-sxm", "sglang")}
    assert "**NVFP4** on B200 is within 10 % with TensorRT-LLM, in the halves with vLLM too, not with SGLang" in WORDS
    assert {engine for gpu, engine in above("nvfp4", 0.10) if gpu == "b200-sxm"} == {"sglang"}
    largest = {e: FITS["b200-sxm", e]["formats"]["nvfp4"]["errors"] for e in ("trtllm", "vllm")}
    means = {engine: errors["largest k and n held out"]["mean"] for engine, errors in largest.items()}
    assert means["trtllm"] < 0.10 < means["vllm"]
    attention = [entry["coefficients"] for record in FITS.values() for entry in record["attention"].values()]
    limited = sum("split_pairs" in coefficients for coefficients in attention)
    assert limited == 6
    assert "and in six fits two more, where single multiprocessors limit it" in WORDS


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


def test_intervals_of_experts_cover_what_the_fits_found():
    entries = expert_entries()
    intervals = [entry["interval"] for (_, name), entry in entries.items() if name != "w4a16_mxfp4"]
    ends = lambda shares: f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"
    halves = ends([share for interval in intervals for share in interval["covered"]])
    left_out = ends([interval["covered_left_out"] for interval in intervals])
    words = " ".join(ERRORS.split())
    assert f"the two shares say much about the draw ({halves})" in words
    assert f"With each network left out, the intervals cover {left_out} of the rows" in words
    two = {table: e["interval"]["covered_left_out"] for (table, name), e in entries.items() if name == "w4a16_mxfp4"}
    assert f"parts of experts are left out in turn: {ends(two.values())}" in words
    assert {table.split()[-1].split("/")[0] for table, share in two.items() if share < 0.85} == {"rtx_pro_6000_server"}


def test_own_fits_of_experts_err_as_the_page_of_errors_says():
    rows = ERRORS[ERRORS.index("| GPU | vLLM | used |") :].split("\n\n")[0].splitlines()[2:]
    cells = {gpu: rest for gpu, *rest in ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)}
    for gpu, (vllm, of_vllm, sglang, of_sglang) in cells.items():
        for engine, printed, used in (("vllm", vllm, of_vllm), ("sglang", sglang, of_sglang)):
            entry = FITS[gpu, engine].get("experts", {}).get("bfloat16")
            assert (entry is None) == (used == "none"), (gpu, engine)
            if entry is not None:
                assert (f"/{engine}/" in entry["table"]) == (used == "own"), (gpu, engine)
            if used == "own":
                assert printed == f"{percent(max(entry['held_out_halves']))} %", (gpu, engine)


def test_formats_without_small_matrices_are_counted():
    notes = [note for record in FITS.values() for entry in record["formats"].values() for note in entry["notes"]]
    left_out = sum("their weights came, or may have come, from a cache" in note for note in notes)
    assert f"left out of the fits of {left_out} formats that quantize activations" in WORDS


def test_halves_of_8_bits_are_those_of_the_fits():
    """On the page of errors: column "now", bold above its target."""
    rows = ERRORS[ERRORS.index("| GPU | engine | weights | before |") :].split("\n\n")[0].splitlines()[2:]
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
