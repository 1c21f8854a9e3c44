"""A model in few bits and its copy in fewer, as files that engines run with kernels for such numbers.

The written files are opened again, and held-out prompts are decoded with them as engines do it: the copy has a KV cache of its
own. Their values are computed with in float32, where kernels for few bits round inputs too.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from hwmodels import Acceptance, Case, DraftCost, Footprint
from hwmodels.network.architecture import ALL_LAYER_MATRICES, KINDS
from hwmodels.networks import Family, running_row, text_config, wrapper_of
from hwmodels.speculation.chains import priced_chains
from jaxspec.errors import InputError
from jaxspec.formats.container import Container, files_beside
from jaxspec.formats.container.source import check_inside
from jaxspec.formats.shard_index import json_object
from jaxspec.host.measuring import device_memory_bytes
from jaxspec.models.compressed_export import COMPRESSED_TYPES, write_compressed
from jaxspec.models.config import DecoderConfig, family_of
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import is_container, load_model, model_place
from jaxspec.models.gguf import is_gguf, open_gguf
from jaxspec.models.gguf_export import GGUF_TYPES, write_gguf
from jaxspec.models.stored import SMALL, as_computed
from jaxspec.partial_files import to_json
from jaxspec.report.formatting import bytes_in_words
from jaxspec.results import given, measured, predicted
from jaxspec.results.network_results import AcceptanceRates
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.settings import CommonConfig
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import acceptance_rates
from jaxspec.speculate.chunks import Prompts, chunk_size, padded
from jaxspec.speculate.drafts import NetworkDraft, ReadyDraft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.engine_flags import ServedDraft, engines_for
from jaxspec.studies.export.config import DRAFT_LENGTH, ExportConfig
from jaxspec.studies.export.readme import MANIFEST, check_place, readme, remove_earlier
from jaxspec.studies.export.result import DecodedDraft, ExportResult
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs
from jaxspec.studies.measured.memory import (
    COMPUTED,
    ROOM_BYTES,
    DraftNeed,
    decoding_bytes,
    parameter_sizes,
    process_bytes,
)
from jaxspec.trees.rank_traces import ratio_of_totals

#: Bits of a weight, about: how far a file is written.
_BITS = {"f16": 16, "bf16": 16, "q8_0": 8.5, "q4_0": 4.5, "fp8": 8, "w4a16": 4.125}

#: Of the layers' matrices, and of the embedding and the head.
_Bits = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Form:
    """A way to write networks.

    Attributes:
        types: of matrices, that it has.
        target, draft: of these, unless others are asked for.
        ending: of the names of what is written.
        write: a network at a place, in a type, to a path; gives the bits of a weight.
        engine: whose kernels and terms the price has; None: several read them, and the device's own count.
    """

    types: tuple[str, ...]
    target: str
    draft: str
    ending: str
    write: Callable[..., _Bits]
    engine: str | None = None


def _write_directory(path: Path, place: Path, kind: str, **how: Any) -> _Bits:
    files = target_files(str(place))
    return write_compressed(path, place, kind, config=files.written_config("bfloat16"), beside=files.copied, **how)


#: By the names of `--format`.
FORMS = {
    "gguf": Form(GGUF_TYPES, "q8_0", "q4_0", ".gguf", write_gguf, "llama.cpp"),
    "compressed-tensors": Form(COMPRESSED_TYPES, "fp8", "w4a16", "", _write_directory),
}

#: Held-out prompts, unless a number is given.
_PROMPTS = 24

#: Settings that a run says itself.
_OF_MODELS = ("format", "target_type", "draft_type", "draft_length", "text", "prompt_tokens", "output_tokens")


def names_model(name: str) -> bool:
    """Whether what is exported is a model, not a run."""
    place = model_place(name)
    return is_gguf(place) or is_container(place) or os.path.isfile(place / "config.json")


def check_no_model_settings(config: ExportConfig) -> None:
    """Raise InputError where a run comes with settings of a model."""
    named = next((name for name in _OF_MODELS if getattr(config, name) is not None), None)
    if named is not None:
        raise InputError(
            f"{named} came with run {config.run!r}, whose draft is written as it is, in the target's type: a draft of zeros "
            "and cut bits is no faster in few bits than the whole network in as many; give the model instead of the run"
        )


def export_model(config: ExportConfig, out: str | Path | None, *, force: bool, reporter: Reporter) -> ExportResult:
    """Write a model and its low-bit copy, and measure the copy as a draft.

    Raises:
        InputError: bad input; nothing is left then.
    """
    started = time.perf_counter()
    form_name = config.format or next(iter(FORMS))
    form = FORMS[form_name]
    types = {"target": config.target_type or form.target, "draft": config.draft_type or form.draft}
    for part, kind in types.items():
        if kind not in form.types:
            raise InputError(f"{part}_type is {kind!r}; as {form_name} it is one of {', '.join(form.types)}")
    if config.configuration is not None:
        raise InputError("configuration came with a model, which has none; leave it out, or give a run")
    source = model_place(config.run)
    place = Path(f"{source.stem}-{form_name}" if out is None else out)
    check_place(place, force=force, kept={"the model": source})
    common = _settings(config, config.run)
    tokens = target_files(str(source)).has_tokenizer
    checked = check_inputs(common)  # before any file is written
    if config.prompts != 0:
        _check_memory(checked, common.output_tokens)
    size = checked.network.num_parameters()
    place.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.absolute().parent, prefix=f".{place.name}-") as scratch:
        folder, bits = Path(scratch), dict[str, _Bits]()
        for part, kind in types.items():
            with reporter.bytes_bar(f"writing the {part} in {kind}", int(size * _BITS[kind] / 8)) as advance:
                bits[part] = form.write(folder / f"{part}{form.ending}", source, kind, on_bytes=advance)
        paths = {part: str(place.absolute() / f"{part}{form.ending}") for part in types}
        length = config.draft_length or DRAFT_LENGTH
        known = engines_for(paths["target"], ServedDraft("network", paths["draft"]), length, tokenizer=tokens)
        # llama.cpp converts no such directories.
        engines = [engine for engine in known if form.ending or engine.title != "llama.cpp"]
        result = ExportResult(
            device=common.device[0],
            architecture="own",
            target=paths["target"],
            checkpoint=str(source),
            directory=str(place),
            format=form_name,
            target_dtype=types["target"],
            draft_dtype=types["draft"],
            draft_length=given(length),
            bits_per_weight=given(bits["draft"][0]),
            compressed_kv=False,
            engines={engine.title: engine.content for engine in engines},
            versions=versions(),
        )
        written = {part: str(folder / f"{part}{form.ending}") for part in types}
        result = _measured(config, result, written, bits, reporter)
        (folder / "engines").mkdir()
        for engine in engines:
            (folder / "engines" / engine.file).write_text(engine.content)
        (folder / "README.md").write_text(readme(result, engines, where_priced(result)))
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        result = dataclasses.replace(result, files=sizes, timing_s={"export": measured(time.perf_counter() - started)})
        (folder / MANIFEST).write_text(to_json(result.plain()))
        place.mkdir(exist_ok=True)
        remove_earlier(place)
        for path in sorted(folder.rglob("*")):
            target = place / path.relative_to(folder)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                shutil.move(path, target)
    return result


def _settings(config: ExportConfig, model: str) -> CommonConfig:
    chosen = {name: getattr(config, name) for name in ("text", "prompt_tokens", "output_tokens")}
    return CommonConfig(
        model=model,
        architecture="own",
        device=(config.device or "rtx-4090-calibrated",),
        engine=FORMS[config.format or next(iter(FORMS))].engine,
        prompts=config.prompts or _PROMPTS,
        **{name: value for name, value in chosen.items() if value is not None},
    )


def _check_memory(checked: CheckedInputs, tokens: int) -> None:
    """Raise InputError where both networks in float32, and what they decode so many tokens with, take more than there is."""
    network = checked.network
    # A small one is held once more, laid out to decode with.
    copies = 2 if network.num_parameters() <= SMALL else 1
    caches = DraftNeed(per_slot=3 * COMPUTED * network.num_layers * network.cached_shape.elements)
    need = 2 * copies * COMPUTED * parameter_sizes(network) + ROOM_BYTES + process_bytes()
    need += decoding_bytes(network, [len(prompt) for prompt in checked.prompts], tokens, [caches])
    if need > (there := device_memory_bytes()):
        raise InputError(
            f"decoding with both networks in float32 takes about {bytes_in_words(need)}, and there are "
            f"{bytes_in_words(there)}; use --prompts 0 to write the files without measuring them, or a device with more memory"
        )


def _measured(
    config: ExportConfig, result: ExportResult, paths: Mapping[str, str], bits: Mapping[str, _Bits], reporter: Reporter
) -> ExportResult:
    """What the written files do, and the speed that follows."""
    if config.prompts == 0:
        return result
    common = _settings(config, paths["target"])
    checked, length = check_inputs(common), int(result.draft_length.known)
    target, draft = (load_model(path, dtype=jnp.float32) for path in paths.values())
    prompts, lengths = padded(checked.prompts)
    asked = Prompts(prompts, common.output_tokens, GREEDY, common.seed, lengths, checked.stop)
    ready = ReadyDraft(NetworkDraft(draft.config), as_computed(draft.params))
    decoded = decoded_alone(as_computed(target.params), target.config, ready, asked, length, reporter, longest=length)
    speedup = _speedup(checked.pricings[common.device[0]], bits, decoded)
    return dataclasses.replace(result, alone=decoded, speedup_vs_stored_ar=predicted(speedup))


def _speedup(pricing: Case, written: Mapping[str, _Bits], decoded: DecodedDraft) -> float:
    """Over the target without a draft, of the files on the priced device."""
    bits = lambda part: {name: written[part][name not in ALL_LAYER_MATRICES] for name in KINDS}
    footprint = Footprint(bits("draft"), bits("target"), 16.0, 16.0)
    conditional = np.nan_to_num(np.asarray(decoded.acceptance.conditional.known, np.float32))
    draft = DraftCost(separate_weights=1.0, statement="a copy of the target in fewer bits")
    case = dataclasses.replace(pricing, footprint=footprint, draft=draft)
    chains = priced_chains(case, Acceptance(conditional=conditional))
    return float(chains.result.speedup_vs_stored_ar[-1])


def where_priced(result: ExportResult) -> str:
    """Device and engine of the predicted speed."""
    engine = FORMS[str(result.format)].engine
    return f"{result.device}, {engine}" if engine else str(result.device)


def decoded_alone(
    params: Params,
    config: DecoderConfig,
    draft: ReadyDraft,
    prompts: Prompts,
    length: int,
    reporter: Reporter,
    *,
    longest: int = MAX_DRAFT_LENGTH,
) -> DecodedDraft:
    """Acceptance and tokens per cycle of chains.

    Args:
        params, config: of the target.
        length: drafted tokens per cycle.
        longest: see `decode_chains`.
    """
    count = len(prompts.tokens)
    with reporter.bar("decoding with the draft as engines run it", count, step=chunk_size(count)) as bar:
        counts = decode_chains(
            params,
            config,
            draft,
            prompts,
            length,
            longest=longest,
            advance=bar.advance,
        )
    rates: dict[str, Any] = acceptance_rates(counts["accepted_at"], counts["ended_at"], counts["cycles"], length)
    ratio = ratio_of_totals(counts["generated"].astype(np.float64), counts["cycles"].astype(np.float64))
    return DecodedDraft(
        prompts=given(count),
        acceptance=AcceptanceRates(**{name: measured(rate) for name, rate in rates.items()}),
        tokens_per_cycle=measured(float(ratio.mean), float(ratio.standard_error)),
    )


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
        config = text_config(self.config)
        # Written are values, however the target's files pack them.
        config = {key: value for key, value in config.items() if key != "quantization_config"}
        family = family_of(config)
        if wrapper_of(self.config) is not None or config["model_type"] in family.also:
            config = _as_of_family(config, family)
        key = "dtype" if "dtype" in config else "torch_dtype"
        return config | {key: dtype} | ({"tie_word_embeddings": False} if own_head else {})

    @property
    def has_tokenizer(self) -> bool:
        """Whether a tokenizer goes along."""
        return any(name.startswith("tokenizer") or name == "vocab.json" for name in self.copied)


def _as_of_family(config: dict[str, Any], family: Family) -> dict[str, Any]:
    """The config.json of a network by its family's own name, which engines open without code beside the weights."""
    # Under its own name the family has other defaults.
    meant = {key: value for key, value in family.also.get(config["model_type"], {}).items() if value is not None}
    settings = meant | {key: value for key, value in config.items() if key != "auto_map"}
    for key in {"rope_scaling", "rope_parameters"} & settings.keys():
        if isinstance(settings[key], dict):  # of positions of images, which the decoder alone has not
            settings[key] = {name: value for name, value in settings[key].items() if not name.startswith("mrope_")}
    return settings | {"architectures": [running_row(family).architecture], "model_type": family.name}


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
