import numpy as np
import pytest

from hwmodels.analysis.calibration.measurements import MeasurementError, read_measurements, write_measurements

GOOD = "m, k,n,weight_bits,seconds,kernel\n1,4096,6144,16,3.6e-5,first\n\n5,1024,1536,4,1.4e-5,second\n"


def written(tmp_path, text):
    path = tmp_path / "times.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_and_writes_back(tmp_path):
    read = read_measurements(written(tmp_path, GOOD))
    assert read.conditions["m"].tolist() == [1, 5]
    assert read.seconds.tolist() == [3.6e-5, 1.4e-5]
    assert read.notes == {"kernel": ["first", "second"]}
    write_measurements(tmp_path / "again.csv", read)
    again = read_measurements(tmp_path / "again.csv")
    assert again.notes == read.notes
    for name in read.conditions:
        np.testing.assert_array_equal(again.conditions[name], read.conditions[name])


def test_steps_may_have_no_context(tmp_path):
    path = written(tmp_path, "batch,new_tokens,context_tokens,weight_bits,seconds\n2,1,0,8,0.011\n")
    assert read_measurements(path, kind="step").conditions["context_tokens"].tolist() == [0]
    with pytest.raises(ValueError, match="product, step"):
        read_measurements(path, kind="kernel")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m,k,n,seconds\n1,2,3,4\n", "weight_bits"),
        ("m,m,k,n,weight_bits,seconds\n1,1,2,3,4,5\n", r"\['m'\] are there twice"),
        ("m,k,n,weight_bits,seconds\n", "no rows"),
        ("", "missing"),
        (GOOD + "0,1,1,16,1\n2,1,1,16,fast\n", r"line 5: m is '0'; line 6: seconds is 'fast'"),
        (GOOD + "1,2\n", "line 5: 2 cells"),
        (GOOD + "1,2,3,16,inf,x\n", "seconds is 'inf'"),
        (GOOD + "1,2,3,16,nan,x\n" * 9, "and 4 lines more"),
    ],
)
def test_refuses_in_one_line(tmp_path, text, message):
    with pytest.raises(MeasurementError, match=message) as refusal:
        read_measurements(
            written(tmp_path, text.replace("\n0,1,1,16,1\n2,1,1,16,fast\n", "\n0,1,1,16,1,x\n2,1,1,16,fast,x\n"))
        )
    assert "\n" not in str(refusal.value)


def test_refuses_what_is_no_text(tmp_path):
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_measurements(tmp_path / "absent.csv")
