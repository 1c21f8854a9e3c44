"""What is taken for a checkpoint, and which small files belong to it."""

import json

import numpy as np
import pytest
from container_samples import pack_to, tensor, weights, write_checkpoint

from jaxspec.errors import InputError
from jaxspec.formats.container import Container, open_checkpoint

SMALL = tensor("a", "U8", np.arange(7, dtype=np.uint8))


def refused(path, match):
    with pytest.raises(InputError, match=match) as caught:
        open_checkpoint(path)
    assert str(caught.value).isprintable()


def test_tensors_come_in_the_order_of_their_bytes(tmp_path):
    tensors = [
        tensor("z", "BF16", weights((3, 5), seed=1)),
        tensor("empty", "BF16", np.zeros((0, 5), np.uint16)),
        tensor("a", "F32", np.arange(2, dtype=np.uint32)),
        tensor("scalar", "F64", np.array(1.5).view(np.uint64)),
    ]
    path = write_checkpoint(tmp_path / "m.safetensors", tensors, metadata={"a": "no tensor"}, padding=3)
    checkpoint = open_checkpoint(path)
    (file,) = checkpoint.files
    # Of those that begin at one place, by name.
    assert [form.name for form in file.tensors] == ["z", "a", "empty", "scalar"]
    assert [form.shape for form in file.tensors] == [(3, 5), (2,), (0, 5), ()]
    # Bytes where the dtype is no known number format.
    assert [form.elements for form in file.tensors] == [15, 2, 0, 8]
    assert [form.columns for form in file.tensors] == [5, 2, 5, 1]
    assert file.header == path.read_bytes()[: len(file.header)]
    np.testing.assert_array_equal(file.read(file.tensors[0], 4, 7), weights((3, 5), seed=1).reshape(-1)[4:11])
    assert file.read(file.tensors[1], 1, 1).tolist() == [1]
    assert file.read(file.tensors[3], 0, 8).tobytes() == tensors[3].data
    file.release()
    assert file.read(file.tensors[1], 0, 2).tolist() == [0, 1]


def test_a_folder_takes_along_its_small_texts(tmp_path):
    write_checkpoint(tmp_path / "model.safetensors", [SMALL])
    belong = ("config.json", "merges.txt", "tokenizer.model", "chat_template.jinja")
    for name in (*belong, "weights.bin", "readme", "run.py", "new\nline.json"):
        (tmp_path / name).write_text(name)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "config.json").write_text("another")
    checkpoint = open_checkpoint(tmp_path)
    assert sorted(checkpoint.beside) == sorted(belong)
    pack_to(tmp_path / "a.jspk", tmp_path, "raw")
    with Container(tmp_path / "a.jspk") as container:
        assert {name: container.read_file(name) for name in container.beside} == checkpoint.beside


def test_an_index_decides_which_files_count(tmp_path):
    for name in ("one", "two"):
        write_checkpoint(tmp_path / f"{name}.safetensors", [SMALL._replace(name=name)])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"two": "two.safetensors", "one": "one.safetensors"}}))
    for path in (tmp_path, index):
        assert [file.path.name for file in open_checkpoint(path).files] == ["one.safetensors", "two.safetensors"]
    write_checkpoint(tmp_path / "unlisted.safetensors", [SMALL._replace(name="unlisted")])
    for path in (tmp_path, index):
        assert len(open_checkpoint(path).files) == 2
    index.unlink()
    assert len(open_checkpoint(tmp_path).files) == 3


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"weight_map": 3}', "{}", '{"weight_map": {"a": []}}', "[" * 100_000, "\x00"]
)
def test_an_index_that_is_none(text, tmp_path):
    write_checkpoint(tmp_path / "one.safetensors", [SMALL])
    (tmp_path / "model.safetensors.index.json").write_text(text)
    refused(tmp_path, r"index\.json (is no readable JSON|holds a JSON|has no weight_map|puts tensor 'a' in)")


def test_one_tensor_may_be_in_one_file_only(tmp_path):
    for name in ("one", "two"):
        write_checkpoint(tmp_path / f"{name}.safetensors", [SMALL])
    refused(tmp_path, r"tensor 'a' is in both .*one\.safetensors and .*two\.safetensors")


def test_what_is_no_checkpoint(tmp_path):
    refused(tmp_path / "absent", "does not exist")
    (tmp_path / "m.jspk").write_bytes(b"any")
    refused(tmp_path / "m.jspk", r"m\.jspk' is a container by its name; .*: unpack it first")
    refused(tmp_path, r"has no \.safetensors file; pickled weights are never opened")
    whole = write_checkpoint(tmp_path / "m.safetensors", [SMALL]).read_bytes()
    for content in (b"", b"\x80\x02 a pickle", whole[:-1], whole + b"\0", whole.replace(b"[0, 7]", b"[0, 6]")):
        (tmp_path / "m.safetensors").write_bytes(content)
        refused(tmp_path / "m.safetensors", "is no whole safetensors file")
    (tmp_path / "m.safetensors").unlink()
    (tmp_path / "folder.safetensors").mkdir()
    refused(tmp_path, r"folder\.safetensors is a folder where a file belongs")
