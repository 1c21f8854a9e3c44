"""Folders of a download cache are read through their links; what a half-finished download or a cleaning left out is told."""

import json
import os
import shutil

import pytest
from hf_directories import LLAMA, bfloat16_params, shard

from jaxspec.errors import InputError
from jaxspec.formats.container import open_checkpoint, weight_notes
from jaxspec.models.embedded import check_directory
from jaxspec.models.hf_export import save_directory
from jaxspec.models.special_tokens import end_tokens
from jaxspec.studies.export.run import target_files

READERS = (check_directory, open_checkpoint)
VERSION = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"


@pytest.fixture
def cache(tmp_path):
    """A sharded network as huggingface_hub keeps it: a folder of links for the version, to blobs beside it."""
    folder = tmp_path / "models--org--name"
    (blobs := folder / "blobs").mkdir(parents=True)
    (snapshot := folder / "snapshots" / VERSION).mkdir(parents=True)
    save_directory(bfloat16_params(LLAMA), LLAMA, snapshot, max_positions=99)
    shard(snapshot)
    beside = {"generation_config.json": json.dumps({"eos_token_id": 3}), "chat_template.jinja": "{{ messages }}"}
    for name, content in beside.items():
        (snapshot / name).write_text(content)
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(blobs / f"{number:040x}")
        os.symlink(f"../../blobs/{number:040x}", file)
    return folder


def test_a_version_is_read_through_its_links(cache):
    place = cache / "snapshots" / VERSION
    assert check_directory(place).num_layers == LLAMA.num_layers
    assert set(open_checkpoint(place).beside) >= {"config.json", "generation_config.json", "chat_template.jinja"}
    assert end_tokens(place, vocab_size=11) == (3,)


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "generation_config.json", "chat_template.jinja"),
        *("a.safetensors", "model.safetensors.index.json"),
    ],
)
def test_a_file_whose_blob_is_gone_is_not_left_out(cache, name):
    # Without generation_config.json a text would end elsewhere, without a template prompts would be other ones.
    place = cache / "snapshots" / VERSION
    blob = place / os.readlink(place / name)
    blob.rename(f"{blob}.incomplete")
    for read in READERS:
        with pytest.raises(
            InputError, match=rf"{name} is a link to '\.\./\.\./blobs/\w+', which is not there"
        ) as caught:
            read(place)
        assert str(caught.value).isprintable()
    (place / name).unlink()
    if name == "generation_config.json":  # a release that has none
        assert check_directory(place).num_layers == LLAMA.num_layers


def test_no_file_from_elsewhere_is_packed_or_exported(cache, tmp_path):
    place = cache / "snapshots" / VERSION
    (tmp_path / "secret").write_text("{}")
    for name, refuse in {"special.json": open_checkpoint, "LICENSE": lambda p: target_files(str(p))}.items():
        (place / name).symlink_to(tmp_path / "secret")
        with pytest.raises(InputError, match=rf"{name} is a link to '.*secret', outside its folder.*copy the file"):
            refuse(place)
        assert check_directory(place).num_layers == LLAMA.num_layers
        (place / name).unlink()
    shard = place / "b.safetensors"
    elsewhere = shutil.copy(shard, tmp_path / "weights")
    shard.unlink()
    shard.symlink_to(elsewhere)
    open_checkpoint(place)  # no file is packed as weights that is none
    assert weight_notes(place, packed=True) == [f"{shard} is a link to {elsewhere}"]
