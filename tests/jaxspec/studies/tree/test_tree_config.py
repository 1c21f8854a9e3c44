"""Settings of `jaxspec tree`: what is refused, and before any work."""

import pytest

from jaxspec.errors import InputError
from jaxspec.settings import build_config
from jaxspec.studies import TreeConfig, search_tree


@pytest.fixture(scope="module")
def settings(tiny_model, some_text):
    return {"model": str(tiny_model), "text": str(some_text), "nodes": 6, "depth": 3, "contexts": "2048,70,32768"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nodes": 2, "depth": 3, "search": "width"}, "depth is 3; 2 nodes can have 1 to 2 levels"),
        ({"draft": "nobody"}, "draft 'nobody' is unknown"),
        ({"device": "rtx-409"}, "did you mean"),
    ],
)
def test_bad_input_is_refused_before_any_work(settings, tmp_path, given, words):
    with pytest.raises(InputError, match=words):
        search_tree(build_config(TreeConfig, settings, given), out=str(tmp_path / "bad"))
    assert not (tmp_path / "bad" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("128,x", "whole numbers"),
        ("-1", "contexts is -1; allowed is 0"),
        ([1.5], "whole numbers"),
        ("", "whole numbers"),
    ],
)
def test_contexts_are_whole_numbers(value, words):
    with pytest.raises(InputError, match=words):
        build_config(TreeConfig, {"contexts": value})
    assert build_config(TreeConfig, {"contexts": "512, 7,512"}).contexts == (7, 512)
