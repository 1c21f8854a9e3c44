"""Files that commands of a page name, made in an empty working directory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _small_network(folder: Path) -> None:
    import jax
    import ml_dtypes
    import numpy as np

    from jaxspec.models import DecoderConfig, save_directory
    from jaxspec.models.decoder import abstract_params

    config = DecoderConfig(256, 16, 24, 1, 2, 1, 8)
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.standard_normal(leaf.shape).astype(ml_dtypes.bfloat16)
    save_directory(jax.tree.map(draw, abstract_params(config)), config, folder, max_positions=8192)


def _copied(name: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes((ROOT / "jaxspec" / "models" / "embedded" / name).read_bytes())


def _written(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


def _container(path: Path) -> None:
    from jaxspec.studies import PackConfig, pack_checkpoint

    network = path.with_name("network-for-a-container")
    _small_network(network)
    pack_checkpoint(PackConfig(model=str(network), scheme="raw"), path)


def _device(path: Path) -> None:
    path.write_bytes((ROOT / "hwmodels" / "catalog" / "devices" / "rtx-4090.toml").read_bytes())


def _measured(path: Path) -> None:
    board = (ROOT / "hwmodels" / "catalog" / "devices" / "rtx-4090.toml").read_text(encoding="utf-8")
    path.write_text(f"# Written by jaxspec calibrate.\n{board}", encoding="utf-8")


def _times(path: Path) -> None:
    from jaxspec.host.config import EXAMPLE

    path.write_text(EXAMPLE, encoding="utf-8")


def _trace(path: Path) -> None:
    request = {"dataset": "cnn", "generated_tokens": 4, "eagle": [3, 2, 1, 1], "ngram": [1, 1, 2, 1]}
    path.write_bytes(gzip.compress(f"{json.dumps(request)}\n".encode()))


def _tuned(path: Path) -> None:
    knobs = {"weight_prune": 0.4, "weight_cut_bits": 4, "kv_prune": 0.0, "kv_cut_bits": 4, "draft_length": 5}
    tuned = {"knobs": knobs, "acceptance": {"conditional": [0.9, 0.8, 0.8, 0.7, 0.7]}}
    result = {"scheme": "cassandra1", "configurations": {"tuned": tuned}}
    path.write_text(json.dumps([result]), encoding="utf-8")


def _tuned_run(path: Path) -> None:
    path.mkdir()
    _tuned(path / "result.json")


def stand_ins() -> dict[str, Callable[[Path], object]]:
    """How each file that a documented command names is made."""
    return {
        "DIR": _small_network,
        "FILE": _written("A text of some length, again and again.\n" * 500),
        "docs.jsonl": _written(
            '{"text": "A document of some length, again and again, and so on and so forth."}\n' * 500
        ),
        "requests.csv": _written("arrival_s,prompt_tokens,output_tokens\n0,100,20\n0.5,300,40\n"),
        "prompts.txt": _written("One prompt.\nAnother, which is longer.\n"),
        "config.json": _copied("config.json"),
        "path/to/config.json": _copied("config.json"),
        "model.jspk": _container,
        "huffman.jspk": _container,
        "model.safetensors": _copied("model.safetensors"),
        "my.toml": _device,
        "my-chip.toml": _device,
        "my-machine.toml": _measured,
        "times.csv": _times,
        "run.toml": _written("batch = 2\n"),
        "vllm.log": _written("Mean acceptance length: 2.55, Per-position acceptance rate: 0.757, 0.491, 0.303\n"),
        "trace.jsonl.gz": _trace,
        "runs/tune-0123456789ab": _tuned_run,
        "runs/tune-0123456789ab/result.json": _tuned,
        "runs/tune-.../result.json": _tuned,
    }
