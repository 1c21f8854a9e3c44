"""Calls of the command line, as tests make them."""

import pytest

from jaxspec.cli import main


def run(capsys, *arguments):
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return caught.value.code or 0, out, err


def refused(capsys, *arguments):
    """The one line about bad input."""
    code, _, err = run(capsys, *arguments)
    assert code == 2
    (line,) = (line for line in err.strip().splitlines() if line != "compiling ...")  # progress, where that is slow
    assert line.startswith("jaxspec: ")
    return line
