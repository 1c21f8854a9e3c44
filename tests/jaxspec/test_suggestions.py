import pytest

from jaxspec.errors import nearest

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
