"""Results that show, save and open themselves."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from toy_bench import TOY, ToyResult

import jaxspec as js
from jaxspec.api.calls import study_call
from jaxspec.api.results import rows_of
from jaxspec.errors import InputError
from jaxspec.studies.study import STUDIES


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyPrediction(ToyResult):
    """A result with digests of its own, as those of `jaxspec.predict`."""

    inputs: dict[str, str] = dataclasses.field(default_factory=dict)


@pytest.fixture
def results():
    return js.toy(width=4, device="a,b", out="run")


def test_parts_by_number_and_device_and_fields_as_attributes(results):
    assert len(results) == 2
    assert results.devices == ["a", "b"]
    assert results["b"].results == results[1].results == (results.results[1],)
    assert results["b"].area.value == 16
    assert "area" in dir(results["b"])
    assert "area" not in dir(results)
    with pytest.raises(AttributeError, match=r"2 results; take one first, by number or device: 'a', 'b'"):
        _ = results.area
    with pytest.raises(InputError, match="device 'c' is none of these results"):
        _ = results["c"]


def test_tables_figures_and_texts_are_those_of_the_command(results):
    assert results.table("ON</B> B").rows == results.tables[1].rows == results["b"].table().rows
    assert "area" in repr(results.table())
    assert results["a"].figures == ["square", "nothing", "place"]
    assert results["a"].plot("place").get_label() == "run"
    assert type(results["a"].plot()).__name__ == "Figure"
    page = results._repr_html_()
    assert "Toy &lt;b&gt;on&lt;/b&gt; a" in page
    assert "that is all" in page
    assert repr(results["a"]) == "<jaxspec toy: Toy <b>on</b> a; plot() square, nothing, place; in run>"
    assert repr(results.results[0]) == "<ToyResult: a>"
    assert json.loads(results.to_json("out.json")) == json.loads(Path("out.json").read_text())
    assert Path("out.json").read_text() == Path("run/result.json").read_text()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda results: results.plot("square"), "2 results; take one first, by number or device: 'a', 'b'"),
        (lambda results: results["a"].plot("sqare"), "did you mean 'square'. allowed are square, nothing, place"),
        (lambda results: results["a"].plot("nothing"), "no data in this result"),
        (lambda results: results.table(2), "table 2 is none of these results; there are Toy"),
        (lambda results: results.table("zzz"), "table 'zzz' is none"),
        (lambda results: results.to_json("run"), "is there already and is a folder"),
        (lambda results: results.save("run"), "'run' is the run directory of a command; give another place"),
        (lambda results: results.save(results.save("kept")), "'kept' is there already; give another place, or"),
        (lambda results: results.to_frame("side"), "part 'side' has no rows in these results; did you mean 'sides'"),
        (lambda results: js.open_result("nowhere"), "run 'nowhere' is no run directory"),
        (lambda results: results.table(None), "table None is none of these results; there are Toy"),
        (lambda results: results.save(5), "path is 5; it must be of type str"),
        (lambda results: results.to_json(5), "path is 5; it must be of type str"),
        (lambda results: js.load(5), "path is 5; it must be of type str"),
        (lambda results: js.runs.list_runs(5), "folder is 5; it must be of type str"),
        (lambda results: js.runs.compare_runs([5, 6]), "path is 5; it must be of type str"),
        (lambda results: js.runs.compare_runs("run"), "paths is 'run'; give two or more in a list"),
    ],
)
def test_what_is_not_there_is_named(results, use, message):
    with pytest.raises(InputError, match=message):
        use(results)


def test_a_result_is_saved_and_opened_again(results):
    kept = results["b"].save("kept")
    again = js.open_result(kept)
    assert again.results == (results.results[1],)
    assert again.study is TOY
    assert again.config == results.config
    assert again.to_json() == results["b"].to_json()
    assert js.open_result("run") == results
    assert js.open_result(kept) != results
    assert js.open_result("run").results == results.results
    assert js.open_result("run")["a"].plot("place").get_label() == "run"
    assert results.save("kept", force=True) == Path("kept")
    assert len(js.open_result("kept")) == 2
    assert not list(Path().glob(".*part*"))
    Path("other").mkdir()
    Path("other", "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="'other' is there already; give another place"):
        results.save("other", force=True)


def test_saving_replaces_neither_a_run_nor_the_working_directory(results, monkeypatch):
    kept = Path("run", "checkpoints", "stages")
    kept.mkdir(parents=True)
    for place in ("run", "./run/"):
        with pytest.raises(InputError, match="is the run directory of a command; give another place"):
            results.save(place, force=True)
    assert kept.is_dir()
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    for place in (".", "../empty", Path.cwd()):
        with pytest.raises(InputError, match="is the working directory; give the name of a folder in it"):
            results["a"].save(place)


def test_frames_are_the_rows(results):
    pandas = pytest.importorskip("pandas")
    frame = results.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["device"].tolist() == ["a", "b"]
    assert frame["area"].tolist() == [16, 16]
    sides = results.to_frame("sides")
    assert sides.to_dict("records") == rows_of(results.results, "sides")


@pytest.mark.study
def test_containers_are_inspected_and_unpacked(tmp_path):
    from jaxspec.models.embedded import embedded_directory

    place = embedded_directory("embedded-small")
    packed = js.pack(place, scheme="huffman", out=tmp_path / "small.jspk")
    seen = js.inspect(tmp_path / "small.jspk")
    assert seen.scheme == packed.scheme == "huffman"
    assert len(seen.tensors) == len(packed.tensors)
    assert seen.table().rows
    assert seen.plot("container").axes
    assert {row["name"] for row in rows_of(seen.results, "tensors")} == {tensor.name for tensor in seen.tensors}
    restored = js.unpack(tmp_path / "small.jspk", tmp_path / "back")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (place / "model.safetensors").read_bytes()
    assert restored.lossless
    assert len(restored.files) >= 2
    with pytest.raises(InputError, match="cannot be opened"):
        js.inspect(tmp_path / "nothing.jspk")


def test_a_saved_result_has_the_digests_of_the_files_that_it_was_made_of(monkeypatch, tmp_path):
    """Also where they change between the call and `save`, which may be hours later in a notebook."""
    monkeypatch.setitem(STUDIES, "plain-toy", "toy_bench:PLAIN_TOY")
    digest = lambda folder: json.loads((folder / "inputs.json").read_text())
    device = Path("mine.toml")
    device.write_text("area = 1")
    results = study_call("plain-toy")(device="mine.toml")
    kept = results.save("kept")
    assert digest(kept) == {"mine.toml": hashlib.sha256(b"area = 1").hexdigest()}
    device.write_text("area = 22")
    for _ in range(2):
        with pytest.raises(InputError, match=r"mine\.toml has changed since this command began; run it again"):
            results.save("later")
    assert not Path("later").exists()
    assert not list(tmp_path.glob(".*.part"))
    assert digest(js.open_result(kept).save("again")) == digest(kept)
    recorded = dataclasses.replace(results, results=(ToyPrediction(device="mine.toml", inputs={"mine.toml": "5eed"}),))
    assert digest(recorded.save("recorded")) == {"mine.toml": "5eed"}
