"""Which checks run with `-m slow` alone, chosen by made times."""

from choose_slow_checks import LONG, MOST, MOST_OF_EACH, slow_of

MODULE = "tests/jaxspec/trees/test_made.py"


def chosen(seconds, fixtures=None):
    """Of checks in thousandths of all; the rest is one that stays in every run."""
    named = {f"{MODULE}::{name}": value for name, value in seconds.items()}
    rest = {"tests/test_rest.py::test_all": 1000.0 - sum(seconds.values())}
    shared = {f"{MODULE}::{name}": set(value) for name, value in (fixtures or {}).items()}
    return [name.partition("::")[2] for name in slow_of(named | rest, shared)]


def test_the_shortest_of_each_module_stays():
    assert 1000 * LONG == 0.5
    assert chosen({"test_b": 0.7, "test_a": 0.9, "test_c": 0.6, "test_d": 0.4, "test_e": 0.4}) == ["test_a", "test_b"]
    # Unless it takes more than any may; gradients go first.
    assert 1000 * MOST == 1
    assert chosen({"test_a": 0.9}) == []
    assert chosen({"test_a": 1.1}) == ["test_a"]
    assert chosen({"test_a": 0.9, "test_gradient": 0.6}) == ["test_gradient"]
    assert chosen({"test_a": 1.1, "test_gradient": 0.6}) == ["test_a"]


def test_what_makes_what_others_share_stays():
    seconds = {"test_a": 0.9, "test_b": 0.6, "test_c": 0.09}
    assert chosen(seconds) == ["test_a"]
    assert chosen(seconds, {"test_a": ["run"], "test_c": ["run"]}) == []
    # Not if another makes it before, if none of the others runs, or if it also makes what it has for itself.
    assert chosen(seconds, {"test_c": ["run"], "test_a": ["run"]}) == ["test_a"]
    assert chosen(seconds | {"test_c": 0.8}, {"test_a": ["run"], "test_c": ["run"]}) == ["test_a", "test_c"]
    assert chosen(seconds, {"test_a": ["run", "own"], "test_c": ["run"]}) == ["test_a"]


def test_where_making_takes_too_long_all_go_that_share_it():
    seconds = {"test_a": 1.1, "test_b": 0.6, "test_c": 0.01, "test_d": 0.01}
    assert chosen(seconds, {"test_a": ["run"], "test_c": ["run"]}) == ["test_a", "test_c"]
    assert chosen(seconds, {"test_a": ["run"], "test_c": ["other"]}) == ["test_a"]
    # Not if many share it.
    assert 1000 * MOST_OF_EACH == 0.25
    assert chosen(seconds, {name: ["run"] for name in seconds}) == list(seconds)
    assert chosen(seconds | {"test_e": 0.01}, {name: ["run"] for name in [*seconds, "test_e"]}) == []
