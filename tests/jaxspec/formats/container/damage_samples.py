"""What test_container_damage and test_container_hostile share."""

import pytest

from jaxspec.errors import InputError
from jaxspec.formats.container import Container, unpack


def read_all(path, folder=None):
    """Every tensor as target, after every tensor as draft; and unpacked, where a folder is given."""
    with Container(path) as container:
        for name in container.tensors:
            container.read(name, "draft")
        for name in container.beside:
            container.read_file(name)
        for index in range(len(container.files)):
            container.read_header(index)
        target = {name: container.read(name) for name in container.tensors}
        if folder is not None:
            unpack(container, folder)
        return target


def or_one_line(path, folder=None):
    """The tensors, or the one line of an InputError; any other exception is a defect."""
    try:
        return read_all(path, folder)
    except InputError as error:
        message = str(error)
    assert message.isprintable()
    assert len(message) < 1000
    assert str(path) in message
    return message


def refused(path, content, match=None):
    path.write_bytes(content)
    with pytest.raises(InputError, match=match) as caught:
        read_all(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    assert str(path) in message
    return message
