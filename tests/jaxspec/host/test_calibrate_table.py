"""Files of measured times: read back to the same numbers, and wrong ones refused with line and column."""

import pytest

from jaxspec.errors import InputError
from jaxspec.host.config import EXAMPLE
from jaxspec.host.table import COLUMNS, PARTS, read_rows, rows_text

HEAD = "part,weight_bits,batch,tokens,inner,outer,context_tokens,heads,kv_heads,head_dim,seconds\n"
GOOD = HEAD + "product,16,1,8,256,704,,,,,2e-6\n"


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "times.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_rows(path)

    return read


def test_the_example_has_every_large_part_and_comes_back(read):
    rows = read(EXAMPLE)
    # Cycles say what this package's own loop spends, which nobody brings from elsewhere.
    assert {row.part for row in rows} == PARTS.keys() - {"turn", "launch", "cycle"}
    assert rows_text(read(rows_text(rows))) == rows_text(rows)
    assert EXAMPLE.splitlines()[0] == ",".join(COLUMNS)


def test_columns_in_any_order_spaces_and_empty_lines(read):
    (row,) = read(
        "﻿seconds , part, inner,outer,tokens,batch,weight_bits\n\n2e-6, product ,256,704,8,3,16\n , , , , , , \n"
    )
    assert (row.rows, row.weights, row.read, row.seconds) == (24.0, 256.0 * 704, 256 * 704 * 2.0, 2e-6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: column part is missing"),
        (HEAD, "has no rows below its header"),
        (HEAD.replace("inner", "outer"), "line 1: column outer is there twice"),
        (GOOD + "product,16\n", "line 3: 2 cells came; its header has 11 columns"),
        (GOOD + "produkt,16,1,8,256,704,,,,,2e-6\n", "line 3, column part: 'produkt' is unknown; allowed: product"),
        (GOOD + "product,16,1,8,256,,,,,,2e-6\n", "line 3, column outer: empty; a product needs weight_bits"),
        (GOOD + "product,16,1,8,256,704,9,,,,2e-6\n", "line 3, column context_tokens: '9' came, but a product has"),
        (GOOD + "product,16,1,8,256,704,,,,,fast\n", "line 3, column seconds: 'fast' came; it must be a positive"),
        (GOOD + "product,16,1,8,256,704,,,,,nan\n", "line 3, column seconds: 'nan' came"),
        (GOOD + "product,16,1,80,256,704,,,,,1e-10\n", "line 3, column seconds: 1e-10 came for 80 rows by a matrix of"),
        (HEAD + "attention,,1,1,,,5,3,2,64,1\n", "line 2, column heads: 3 came; it must be a multiple of kv_heads, 2"),
        (
            HEAD + "attention,,1e9,1e9,,,1e9,4,2,64,1\n",
            "line 2, column seconds: 1 came for part attention, which is 1e+30 operations per second; allowed are 1e+17",
        ),
        ("part,read_bytes,seconds\nstream,1e15,1e-6\n", "1e-06 came for part stream, which is 1e+21 bytes per second"),
        (
            "part,weight_bits,batch,tokens,context_tokens,architecture,seconds\nstep,16,1e9,1,1e12,tiny,1\n",
            "part step, which is 1e+21 operations",
        ),
        (GOOD + 'product,"16,1\n', "not valid CSV"),
        (b"part,seconds\nturn,\xff\n", "cannot be read"),
    ],
)
def test_what_is_refused(read, text, says):
    with pytest.raises(InputError) as caught:
        read(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
