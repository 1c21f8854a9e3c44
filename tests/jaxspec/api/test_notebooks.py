"""Progress in a notebook, and objects that draw themselves there."""

import sys
import types

import pytest

import jaxspec as js
from jaxspec.api.calls import notebook_reporter


@pytest.mark.parametrize("make", [notebook_reporter, js.runs.Reporter])
def test_a_notebook_shows_one_line_that_changes(monkeypatch, capfd, make):
    shown = []
    handle = types.SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    def display(data, **_):
        shown.append(data["text/plain"])
        return handle

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=None)
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    reporter = make()
    reporter.line("run <directory> runs/x")
    with reporter.bar("building", 2) as bar:
        bar.advance("one")
        bar.advance("two")
    assert shown[0] == "run <directory> runs/x"
    assert shown[-1].startswith("building: two, done in")
    ipython.get_ipython = lambda: None
    count = len(shown)
    notebook_reporter().line("nothing")
    assert len(shown) == count
    assert capfd.readouterr() == ("", "")
