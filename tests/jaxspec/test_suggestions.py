import pytest

from jaxspec.suggestions import hint, nearest

COMMANDS = ("tune", "evaluate", "tree", "predict", "sweep", "pack", "unpack", "inspect", "devices", "models")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tnue", "tune"),
        ("TUNE", "tune"),
        ("tun", "tune"),
        ("evalute", "evaluate"),
        ("preditc", "predict"),
        ("unpakc", "unpack"),
        ("device", "devices"),
        ("inpsect", "inspect"),
    ],
)
def test_a_slip_of_the_keyboard_finds_its_command(name, meant):
    assert nearest(name, COMMANDS) == [meant]


def test_letters_that_changed_places_are_the_best_match():
    assert nearest("--devcie", ["--objective", "--seed", "--device"]) == ["--device"]
    assert nearest("abdc", ["abcc", "abcd"]) == ["abcd"]


def test_what_is_like_nothing_has_no_suggestion():
    assert nearest("fly", COMMANDS) == []
    assert hint("fly", ("a", "b")) == "; allowed are a, b"
    assert hint(3, ("a", "b")) == "; allowed are a, b"
    assert hint("x" * 100_000, COMMANDS).startswith("; allowed are tune")
    assert hint("tnue", ("tune", "tree")) == "; did you mean 'tune'? allowed are tune, tree"
    assert hint("tnue", ("tune", "tree"), quote=False, list_all=False) == "; did you mean tune?"
