"""The small files of an exported network's checkpoint: its configuration, tokenizer and licence."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from hwmodels.networks import Family, running_row, text_config, wrapper_of
from jaxspec.formats.container import Container, files_beside
from jaxspec.formats.container.source import check_inside
from jaxspec.formats.shard_index import json_object
from jaxspec.models.embedded import is_container, model_place
from jaxspec.models.families import family_of
from jaxspec.models.gguf import is_gguf, open_gguf
from jaxspec.studies.export.readme import MANIFEST

#: Files of a checkpoint that are its weights' or an earlier export's: their names, and endings of names.
_LEFT_OUT, _LEFT_OUT_ENDINGS = {"config.json", MANIFEST}, (".index.json",)


#: Beginnings of the names of licences.
_LICENCES = ("LICENSE", "LICENCE", "NOTICE", "USE_POLICY")


@dataclasses.dataclass(frozen=True)
class TargetFiles:
    """Small files of a target's checkpoint.

    Attributes:
        path: of the checkpoint: a folder, or a container.
        config: the content of config.json.
        copied: name -> content of the others, which a draft needs word for word.
    """

    path: Path
    config: dict[str, Any]
    copied: dict[str, bytes]

    @property
    def packed(self) -> bool:
        """Whether engines need the target unpacked first."""
        return not os.path.isdir(self.path)

    def written_config(self, dtype: str, *, own_head: bool = False) -> dict[str, Any]:
        """The config.json of a network in a number format; of a text decoder, that of the decoder alone.

        Args:
            own_head: the network's LM head is not its embedding, whatever the target's is.
        """
        found = text_config(self.config)
        # Written are values, however the target's files pack them.
        found = {key: value for key, value in found.items() if key != "quantization_config"}
        family = family_of(found)
        if wrapper_of(self.config) is not None or found["model_type"] in family.also:
            found = _as_of_family(found, family)
        key = "dtype" if "dtype" in found else "torch_dtype"
        return found | {key: dtype} | ({"tie_word_embeddings": False} if own_head else {})

    @property
    def has_tokenizer(self) -> bool:
        """Whether a tokenizer goes along."""
        return any(name.startswith("tokenizer") or name == "vocab.json" for name in self.copied)


def _as_of_family(config: dict[str, Any], family: Family) -> dict[str, Any]:
    """The config.json of a network by its family's own name, which engines open without code beside the weights."""
    # Under its own name the family has other defaults.
    meant = {key: value for key, value in family.also.get(config["model_type"], {}).items() if value is not None}
    found = meant | {key: value for key, value in config.items() if key != "auto_map"}
    for key in {"rope_scaling", "rope_parameters"} & found.keys():
        if isinstance(found[key], dict):  # of positions of images, which the decoder alone has not
            found[key] = {name: value for name, value in found[key].items() if not name.startswith("mrope_")}
    return found | {"architectures": [running_row(family).architecture], "model_type": family.name}


def target_files(model: str) -> TargetFiles:
    """The small files of a model that `load_model` opens.

    Raises:
        InputError: it cannot be opened.
    """
    path = model_place(model)
    if is_container(path):
        with Container(path) as container:
            beside = {name: container.read_file(name) or b"" for name in container.beside}
    elif is_gguf(path):
        beside = open_gguf(path).beside
    else:
        beside = files_beside(path)
        for file in sorted(path.iterdir()):
            if file.name.upper().startswith(_LICENCES) and file.is_file():
                check_inside(file)
                beside[file.name] = file.read_bytes()
    config = json_object(beside.get("config.json", b""), path / "config.json")
    left = {name for name in beside if name not in _LEFT_OUT and not name.endswith(_LEFT_OUT_ENDINGS)}
    return TargetFiles(path, config, {name: beside[name] for name in sorted(left)})
