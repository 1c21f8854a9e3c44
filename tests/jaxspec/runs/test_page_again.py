"""The page of a finished run that somebody deleted."""

import pytest

from jaxspec.errors import InputError
from jaxspec.runs.execute import Outputs, execute_run
from jaxspec.settings.base import Settings


@pytest.fixture
def repeated(tmp_path):
    """Runs a toy command in one directory; its page tells how often the work was done."""
    worked = []

    def run(**options):
        def work():
            worked.append(1)
            return {"numbers": [len(worked), float("nan")]}

        outputs = Outputs(page=options.pop("page", None))
        return execute_run("trial", Settings(), lambda *_: work, out=tmp_path / "run", outputs=outputs, **options)

    return run


def write(result, path):
    (path / "report.html").write_text(f"{result['numbers']}")


def test_a_page_that_is_gone_is_written_again_from_the_result(repeated, capsys):
    result, directory = repeated(page=write)
    page = directory.path / "report.html"
    first = page.read_bytes()
    assert first == b"[1, None]"  # of what result.json has
    assert "writing the report" in capsys.readouterr().err
    page.unlink()
    assert repeated(page=write)[0] == result
    assert page.read_bytes() == first
    assert "report.html is not there; it is written from result.json" in capsys.readouterr().err
    page.write_text("mine")
    repeated(page=write)
    assert page.read_text() == "mine"
    assert "is not there" not in capsys.readouterr().err


def test_a_page_that_cannot_be_written_again_leaves_the_result(repeated, capsys):
    result, directory = repeated(page=write)
    (directory.path / "report.html").unlink()

    def damaged(result, path):
        raise InputError("'metrics.jsonl' is damaged; remove it")

    assert repeated(page=damaged)[0] == result
    assert "note: it cannot be written ('metrics.jsonl' is damaged; remove it)" in capsys.readouterr().err
