"""Default names keep their dots, and nothing is written over what it is made from."""

import os
from pathlib import Path

import numpy as np
import pytest
from container_samples import tensor, write_checkpoint

from jaxspec.errors import InputError
from jaxspec.formats.container import Container, default_folder, unpack
from jaxspec.studies.pack.run import PackConfig, pack_checkpoint, unpack_container

SMALL = tensor("a", "U8", np.arange(7, dtype=np.uint8))


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    """A folder with a checkpoint and a file beside it, from the folder above."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "Llama-3.1-8B" / "model.safetensors", [SMALL])
    (tmp_path / "Llama-3.1-8B" / "config.json").write_text("{}")
    return tmp_path / "Llama-3.1-8B"


def packed(model, out=None, **options):
    return pack_checkpoint(PackConfig(model=str(model), scheme="raw"), out, **options)


@pytest.mark.parametrize(("container", "name"), [("in/Llama-3.1.jspk", "Llama-3.1"), ("a.b.jspk", "a.b")])
def test_unpacking_goes_to_the_name_of_the_container(container, name):
    assert default_folder(Path(container)) == Path(name)
    with pytest.raises(InputError, match=r"does not end in \.jspk"):
        default_folder(Path(container).with_suffix(".bin"))


def listing(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "out",
    [
        "Llama-3.1-8B/model.safetensors",
        "Llama-3.1-8B/model.safetensors/",
        "Llama-3.1-8B/../Llama-3.1-8B/model.safetensors",
        "Llama-3.1-8B/config.json",
        "link.jspk",
        "hard.jspk",
        "through/model.safetensors",
        "through/new.json",
        "Llama-3.1-8B/new.safetensors",
        "Llama-3.1-8B/tokenizer.json",
        "Llama-3.1-8B/pytorch_model.bin",
        "elsewhere.safetensors",
        "Llama-3.1-8B",
        "Llama-3.1-8B/",
        "new/",
        "/dev/null",
    ],
)
def test_a_container_replaces_no_part_of_its_checkpoint(model, tmp_path, out, whole):
    os.symlink(model / "model.safetensors", "link.jspk")
    os.link(model / "model.safetensors", "hard.jspk")
    os.symlink(model, "through")
    before = listing(tmp_path)
    with pytest.raises(InputError) as caught:
        packed(model if whole else model / "model.safetensors", out, force=True)
    assert str(caught.value).isprintable()
    assert "force" not in str(caught.value)
    assert listing(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Llama-3.1-8B", "hard.jspk", "link.jspk", "through"]


def test_what_is_unpacked_replaces_no_container(model, tmp_path):
    packed(model, "out.jspk")
    for place in ("in/model.safetensors", "in/config.json"):
        (tmp_path / "in").mkdir(exist_ok=True)
        os.replace("out.jspk", place)
        os.symlink(tmp_path / place, "link")
        before = listing(tmp_path)
        with Container(place) as container, pytest.raises(InputError, match="is the container"):
            unpack(container, Path("in"), force=True)
        with (
            Container(place) as container,
            pytest.raises(InputError, match=r"is the container|cannot be made a folder"),
        ):
            unpack(container, Path("link"), force=True)
        assert listing(tmp_path) == before
        os.replace(place, "out.jspk")
        os.unlink("link")
    os.symlink(tmp_path / "out.jspk", "one.safetensors")
    with pytest.raises(InputError, match="is the container"):
        unpack_container("out.jspk", "one.safetensors", force=True)
    with pytest.raises(InputError, match=r"is the container|cannot be made a folder"):
        unpack_container("out.jspk", "out.jspk", force=True)
