import pytest
from kernel_samples import attention_columns, gemm_columns, write_tables

from hwmodels.analysis.calibration.attention import attention_table
from hwmodels.analysis.calibration.kernel_tables import (
    KernelTableError,
    TableName,
    gemm_formats,
    gemm_table,
    list_tables,
)

GEMM, ATTENTION = (TableName("toy", "engine", "1.0", kind) for kind in ("gemm", "attention"))


def test_reads_what_was_written(tmp_path):
    columns = gemm_columns(lambda m, k, n: m + k + n, "int8_wo")
    write_tables(tmp_path, columns, attention_columns(lambda b, s, h: b * s * h))
    assert list_tables(root=tmp_path) == (ATTENTION, GEMM)
    assert gemm_formats(GEMM, root=tmp_path) == ("int8_wo",)
    table = gemm_table(GEMM, "int8_wo", k_range=(1024, 4096), root=tmp_path)
    assert len(table.m) == 7 * 3 * 4
    assert table.weight_bits == 8
    assert table.seconds == pytest.approx(table.m + table.k + table.n)
    read = attention_table(ATTENTION, root=tmp_path)
    # The new token reads itself too.
    assert set(read.context_tokens) == {128, 512, 1024, 4096, 16384}
    assert read.seconds == pytest.approx(read.batch * read.context_tokens * read.num_kv_heads)


def test_errors_say_what_there_is(tmp_path):
    with pytest.raises(KernelTableError, match="no kernel tables"):
        list_tables(root=tmp_path)
    write_tables(tmp_path, gemm_columns(lambda m, k, n: m))
    for call, message in (
        (lambda: gemm_table(GEMM, "int4_wo", root=tmp_path), "formats there: bfloat16"),
        (lambda: gemm_table(GEMM, "fp6", root=tmp_path), "not modelled"),
        (lambda: gemm_table(GEMM, "fp8", root=tmp_path), "formats there: bfloat16"),
        (lambda: gemm_table(TableName("toy", "engine", "2", "gemm"), root=tmp_path), "there are: toy/engine/1.0"),
        (lambda: attention_table(ATTENTION, root=tmp_path), "no attention table"),
    ):
        with pytest.raises(KernelTableError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
