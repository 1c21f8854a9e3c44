"""Whoever takes a path takes it as text too: users type names of files, and objects of `pathlib` where they have some."""

import dataclasses
import importlib
import inspect
import os
from pathlib import Path

import pytest

from jaxspec.formats.container import (
    Container,
    SafetensorsFile,
    default_container,
    default_folder,
    files_beside,
    open_checkpoint,
    open_weights,
    pack,
    unpack,
    weight_files,
)
from jaxspec.models import load_directory, save_directory
from tests.jaxspec.models.decoder_cases import CONFIG, PARAMS
from tests.test_public_surface import ROOT, exports, packages

#: Annotations of parameters that refuse text.
NARROW = {"Path", "Path | None", "pathlib.Path"}


def functions_of(name, member):
    """A public name's functions: itself, or what a class has but for fields that are handed through."""
    if inspect.isfunction(member):
        yield name, member
    elif inspect.isclass(member):
        for method, value in vars(member).items():
            made = method == "__init__" and not dataclasses.is_dataclass(member) and not hasattr(member, "_fields")
            if inspect.isroutine(value) and (made or not method.startswith("_")):
                yield f"{name}.{method}", getattr(value, "__func__", value)


def test_no_public_function_takes_paths_alone():
    found, seen = [], 0
    for package in packages(ROOT):
        module = importlib.import_module(package)
        for name in exports(ROOT.joinpath(*package.split("."), "__init__.py")):
            for each, function in functions_of(name, getattr(module, name)):
                taken = {k: str(v) for k, v in getattr(function, "__annotations__", {}).items() if k != "return"}
                seen += any("PathLike" in kind for kind in taken.values())
                found += [f"{package}.{each}({place})" for place, kind in taken.items() if kind in NARROW]
    assert found == []
    assert seen > 10


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A checkpoint written by a path that is text."""
    folder = tmp_path_factory.mktemp("paths") / "network"
    save_directory(PARAMS, CONFIG, os.fspath(folder), max_positions=64)
    return folder


def test_networks_and_containers_by_names_of_files(network, tmp_path):
    folder = os.fspath(network)
    assert load_directory(folder).config.vocab_size == CONFIG.vocab_size
    assert weight_files(folder) == ["model.safetensors"]
    assert list(files_beside(folder)) == ["config.json"]
    assert len(open_weights(folder)) == 1
    weights = os.path.join(folder, "model.safetensors")
    assert SafetensorsFile(weights).path == Path(weights)
    assert default_container(folder) == Path("network.jspk")
    assert default_folder("a/network.jspk") == Path("network")
    file, back = os.fspath(tmp_path / "n.jspk"), os.fspath(tmp_path / "back")
    pack(open_checkpoint(folder), file, "cassandra1-coded")
    with Container(file) as container:
        unpack(container, back)
    assert Path(back, "model.safetensors").read_bytes() == Path(weights).read_bytes()
