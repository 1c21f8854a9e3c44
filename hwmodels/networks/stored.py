"""In what form a release stores its weights and keys and values: `quantization_config`, and ModelOpt's `hf_quant_config.json`.

Bits per weight count scales and zero points. Embeddings, norms and routers keep 16 bits in all forms, and what a file lists as
left out; the LM head where the form leaves it out by itself, or the file does.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hwmodels.network.architecture import KINDS, UNCOMPRESSED_BITS, Architecture, attention_shape, linear_shape
from hwmodels.networks.family import Family
from hwmodels.networks.settings import shown
from hwmodels.networks.spec import NetworkSpec
from hwmodels.networks.tensor_names import TENSORS

__all__ = ["StoredForm", "UnpricedFormError", "stored_form"]


class UnpricedFormError(ValueError):
    """A release is stored in a form whose bits are not known here: one line that names it."""


@dataclasses.dataclass(frozen=True)
class StoredForm:
    """How a release stores a network.

    Attributes:
        name: for a reader, as "FP8 in blocks of 128 x 128".
        weight_bits: kind of weight -> bits per weight, on average over its matrices, scales included; all of `KINDS`.
        kv_bits: per element of keys and values; None: nothing is stated.
        left_out: for a reader, what keeps 16 bits, beside `plain`.
        kernels: measured kernels that multiply so, as `weight_format` calls them; None: those whose activations keep 16 bits.
        block: rows and columns that share a scale, of weights in blocks; None: others.
    """

    name: str
    weight_bits: Mapping[str, float]
    kv_bits: float | None = None
    left_out: tuple[str, ...] = ()
    kernels: str | None = None
    block: tuple[int, int] | None = None
    plain: str = "embedding and norms"

    @property
    def statement(self) -> str:
        """The form in words, with what is left out and the cache."""
        cache = "" if self.kv_bits is None else f"; keys and values in {self.kv_bits:g} bits"
        return f"{self.name}; {', '.join([*self.left_out, self.plain])} in 16 bits{cache}"


#: Kinds that forms often leave out -> what they are called.
_NAMED_KINDS = {"q": "attention", "expert_up": "experts", "shared": "shared experts", "lm_head": "LM head"}


@dataclasses.dataclass(frozen=True)
class _Form:
    """One form of matrices.

    Attributes:
        bits: per weight, from the hidden size, which a scale for each channel is shared by.
    """

    name: str
    bits: Callable[[float], float]
    kernels: str | None = None
    block: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """What a file says: forms with the modules that have them, and modules that have none.

    Attributes:
        groups: patterns of modules, None for all matrices of layers and the head, with their form.
    """

    groups: list[tuple[Iterable[str] | None, _Form]]
    ignored: Iterable[str] = ()
    kv: Any = None


def _plain(name: str, bits: float, kernels: str | None = None) -> _Form:
    return _Form(name, lambda _: bits, kernels)


def _channels(name: str, bits: float, kernels: str | None = None, scale_bits: float = 16.0) -> _Form:
    """A scale for each output channel."""
    return _Form(name, lambda hidden: bits + scale_bits / hidden, kernels)


def _grouped(name: str, bits: float, group: Any, *, beside: float = 16.0, where: str = "") -> _Form:
    """Groups of weights along the input that share a scale. Args: beside: bits of scale and zero point of a group."""
    if group in (None, -1):
        return _channels(f"{name} with a scale for each channel", bits, scale_bits=beside)
    size = _whole(group, f"{where}group_size")
    return _plain(f"{name} in groups of {size}", bits + beside / size)


#: Of weights that share a scale.
_LARGEST_GROUP = 2**20


def _table(value: Any) -> Mapping[str, Any]:
    """An object of the file; empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LARGEST_GROUP:
        raise UnpricedFormError(f"{what} {shown(value)}")
    return value


def _fp8(raw: Mapping[str, Any]) -> _Form:
    block = raw.get("weight_block_size") or raw.get("block_structure")
    if block is None:
        return _plain("FP8", 8.0, "fp8")
    if not isinstance(block, list | tuple) or len(block) != 2:
        raise UnpricedFormError(f"weight_block_size {shown(block)}")
    rows, columns = (_whole(size, "weight_block_size") for size in block)
    scale = 8.0 if raw.get("scale_fmt") == "ue8m0" else 32.0
    bits = 8.0 + scale / (rows * columns)
    return _Form(f"FP8 in blocks of {rows} x {columns}", lambda _: bits, "fp8_block", (rows, columns))


_MXFP4, _MXFP8 = _plain("MXFP4", 4.25), _plain("MXFP8", 8.25)


def _nvfp4(group: Any, kernels: str | None = "nvfp4") -> _Form:
    size = _whole(16 if group is None else group, "group_size")
    return _plain("NVFP4", 4.0 + 8.0 / size, kernels)


def _modelopt_form(algorithm: Any, group: Any) -> _Form:
    """Of an algorithm of NVIDIA's Model Optimizer."""
    if not isinstance(algorithm, str):
        raise UnpricedFormError(f"quant_algo {shown(algorithm)}")
    group_of_128 = 128 if group is None else group
    same = dict.fromkeys
    known: dict[str, Callable[[], _Form]] = {
        "FP8": lambda: _plain("FP8", 8.0, "fp8"),
        "FP8_PER_CHANNEL_PER_TOKEN": lambda: _channels("FP8 with a scale for each channel", 8.0, "fp8", 32.0),
        **same(("FP8_PB_WO", "FP8_BLOCK_SCALES", "FP8_PB_REAL"), lambda: _fp8({"weight_block_size": [128, 128]})),
        **same(("NVFP4", "NVFP4_AWQ", "NVFP4_SVDQUANT"), lambda: _nvfp4(group)),
        **same(("W4A16_NVFP4", "W4A8_NVFP4_FP8"), lambda: _nvfp4(group, None)),
        **same(("MXFP4", "W4A8_MXFP4_FP8", "W4A16_MXFP4"), lambda: _MXFP4),
        "MXFP8": lambda: _MXFP8,
        **same(("W4A16_AWQ", "INT4_AWQ", "W4A8_AWQ", "W4A16_GPTQ"), lambda: _grouped("INT4", 4.0, group_of_128)),
        "W4A16": lambda: _grouped("INT4", 4.0, group),
        "W8A16": lambda: _channels("INT8 with a scale for each channel", 8.0),
        "W8A16_GPTQ": lambda: _grouped("INT8", 8.0, group_of_128),
        **same(
            ("W8A8_SQ_PER_CHANNEL", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", "INT8_SQ"),
            lambda: _channels("INT8 W8A8", 8.0, "sq", 32.0),
        ),
    }
    make = known.get(algorithm.upper())
    if make is None:
        raise UnpricedFormError(f"quant_algo {shown(algorithm)}")
    return make()


def _modelopt(raw: Mapping[str, Any]) -> _Recipe:
    own = raw.get("quantization")
    own = raw if not isinstance(own, Mapping) else own
    ignored = [*_texts(own, "exclude_modules"), *_texts(own, "ignore")]
    kv = own.get("kv_cache_quant_algo") or own.get("kv_cache_scheme")
    algorithm, group, layers = own.get("quant_algo"), own.get("group_size"), own.get("quantized_layers")
    if isinstance(layers, Mapping) and layers:
        by_form: dict[tuple[Any, Any], list[str]] = {}
        for module, entry in layers.items():
            stated = _table(entry)
            size = stated.get("group_size", group)
            form = (stated.get("quant_algo"), None if size is None else _whole(size, f"group_size of {module}"))
            if form[0] is not None and not isinstance(form[0], str):
                raise UnpricedFormError(f"quant_algo {shown(form[0])} of {module}")
            by_form.setdefault(form, []).append(module)
        groups: list[tuple[Iterable[str] | None, _Form]] = [
            (modules, _modelopt_form(*form)) for form, modules in by_form.items() if form[0] is not None
        ]
        if own.get("quant_method") == "fp8":  # the matrices that no entry names
            groups.append((None, _fp8(own)))
        return _Recipe(groups, ignored, kv)
    if algorithm is None:
        return _Recipe([], ignored, kv)
    return _Recipe([(None, _modelopt_form(algorithm, group))], ignored, kv)


def _compressed_form(group: Mapping[str, Any]) -> _Form:
    """Of a group of compressed-tensors."""
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, Mapping):
        raise UnpricedFormError(f"weights {shown(weights)} of a group")
    bits, kind, strategy = weights.get("num_bits"), weights.get("type", "int"), weights.get("strategy")
    bits = float(_whole(bits, "num_bits"))
    size = weights.get("group_size")
    narrow = isinstance(inputs, Mapping) and inputs.get("num_bits") == bits
    if kind == "float" and bits == 8.0:
        if strategy == "block" or weights.get("block_structure"):
            return _fp8({"weight_block_size": weights.get("block_structure")})
        if size == 32:
            return _MXFP8
        if strategy == "channel":
            return _channels("FP8 with a scale for each channel", 8.0, "fp8" if narrow else None)
        return _plain("FP8", 8.0, "fp8" if narrow else None)
    if kind == "float" and bits == 4.0:
        of_scales = str(group.get("format") or weights.get("scale_dtype") or "")
        if "mxfp4" in of_scales or "uint8" in of_scales or "e8m0" in of_scales or size == 32:
            return _MXFP4
        return _nvfp4(size, "nvfp4" if narrow else None)
    if kind != "int":
        raise UnpricedFormError(f"weights of type {shown(kind)} in {bits:g} bits")
    zero = 0.0 if weights.get("symmetric", True) else bits
    if strategy in ("channel", "tensor", None) and size in (None, -1):
        called = "INT8 W8A8" if narrow and bits == 8.0 else f"INT{bits:g} with a scale for each channel"
        return _channels(called, bits, "sq" if narrow and bits == 8.0 else None, 16.0 + zero)
    return _grouped(f"INT{bits:g}", bits, size, beside=16.0 + zero)


def _compressed_tensors(raw: Mapping[str, Any]) -> _Recipe:
    groups = raw.get("config_groups")
    if not isinstance(groups, Mapping):
        raise UnpricedFormError(f"config_groups {shown(groups)}")
    rules: list[tuple[Iterable[str] | None, _Form]] = []
    for group in groups.values():
        stated = _table(group)
        targets = _texts(stated, "targets")
        every = not targets or "Linear" in targets
        own = {"format": raw.get("format")} | {key: value for key, value in stated.items() if value is not None}
        rules.append((None if every else targets, _compressed_form(own)))
    # Named modules go before all matrices.
    rules.sort(key=lambda entry: entry[0] is None)
    return _Recipe(rules, _texts(raw, "ignore"), raw.get("kv_cache_scheme") or raw.get("kv_cache_quant_algo"))


def _integers(raw: Mapping[str, Any]) -> _Recipe:
    """GPTQ, AWQ and AutoRound: groups with a scale of 16 bits, and a zero point of as many bits as a weight."""
    bits = float(_whole(raw.get("bits", raw.get("w_bit", 4)), "bits"))
    group = raw.get("group_size", raw.get("q_group_size", 128))
    form = _grouped(f"INT{bits:g} ({raw.get('quant_method')})", bits, group, beside=16.0 + bits)
    inside = raw.get("modules_in_block_to_quantize")
    parts = inside if isinstance(inside, list) else []
    targets = [n for part in parts for n in _texts({"names": part}, "names")] or None
    groups: list[tuple[Iterable[str] | None, _Form]] = [(targets, form)]
    ignored = [*_texts(raw, "modules_to_not_convert"), *([] if raw.get("lm_head") is True else ["lm_head"])]
    for pattern, entry in {**_table(raw.get("dynamic")), **_table(raw.get("extra_config"))}.items():
        if pattern.startswith("-:"):
            ignored.append(f"re:{pattern[2:]}")
            continue
        stated = _table(entry)
        width = float(_whole(stated.get("bits", raw.get("bits")), f"bits of {pattern}"))
        if width >= UNCOMPRESSED_BITS:
            ignored.append(pattern)
            continue
        apart = _grouped(f"INT{width:g}", width, stated.get("group_size", group), beside=16.0 + width)
        groups.insert(0, ([f"re:{pattern.removeprefix('+:')}" if pattern.startswith("+:") else pattern], apart))
    return _Recipe(groups, ignored)


def _bitsandbytes(raw: Mapping[str, Any]) -> _Recipe:
    """Blocks of 64 weights with a scale of 32 bits, or of 8 where 256 of these share one; or rows with one."""
    ignored = [*_texts(raw, "llm_int8_skip_modules"), "lm_head"]
    if raw.get("load_in_4bit") or raw.get("_load_in_4bit"):
        kind = str(raw.get("bnb_4bit_quant_type", "fp4")).upper()
        twice = bool(raw.get("bnb_4bit_use_double_quant"))
        scale = 8.0 + 32.0 / 256.0 if twice else 32.0
        return _Recipe([(None, _plain(f"{kind} (bitsandbytes)", 4.0 + scale / 64.0))], ignored)
    if raw.get("load_in_8bit") or raw.get("_load_in_8bit"):
        return _Recipe([(None, _channels("INT8 (bitsandbytes)", 8.0, scale_bits=32.0))], ignored)
    return _Recipe([])


def _hqq(raw: Mapping[str, Any]) -> _Recipe:
    own = _table(_table(raw.get("quant_config")).get("weight_quant_params"))
    bits = float(_whole(own.get("nbits"), "nbits"))
    return _Recipe([(None, _grouped(f"INT{bits:g} (hqq)", bits, own.get("group_size"), beside=32.0))], ["lm_head"])


def _left_out(raw: Mapping[str, Any]) -> list[str]:
    return [name for key in ("modules_to_not_convert", "ignored_layers", "ignore") for name in _texts(raw, key)]


#: `quant_method` -> what it says. Those that quantize matrices of layers alone leave the head out.
_METHODS: dict[str, Callable[[Mapping[str, Any]], _Recipe]] = {
    "fp8": lambda raw: _Recipe([(None, _fp8(raw))], [*_left_out(raw), "lm_head"]),
    "fbgemm_fp8": lambda raw: _Recipe(
        [(None, _channels("FP8 with a scale for each channel", 8.0, "fp8", 32.0))], [*_left_out(raw), "lm_head"]
    ),
    "mxfp4": lambda raw: _Recipe([(["experts"], _MXFP4)], _left_out(raw)),
    **dict.fromkeys(("gptq", "awq", "auto-round", "intel/auto-round"), _integers),
    "compressed-tensors": _compressed_tensors,
    **dict.fromkeys(("modelopt", "modelopt_fp4", "modelopt_mixed"), _modelopt),
    "bitsandbytes": _bitsandbytes,
    "hqq": _hqq,
    "eetq": lambda raw: _Recipe([(None, _channels("INT8 (eetq)", 8.0))], [*_left_out(raw), "lm_head"]),
}


def _recipe(raw: Mapping[str, Any]) -> _Recipe:
    method = raw.get("quant_method")
    if raw.get("quant_algo") is not None or "quantization" in raw or "quantized_layers" in raw:
        return _modelopt(raw)  # whatever it is called: its groups repeat the algorithm
    if method is None and "config_groups" in raw:
        return _compressed_tensors(raw)
    if method is None and (raw.get("load_in_4bit") or raw.get("load_in_8bit")):
        return _bitsandbytes(raw)
    if not isinstance(method, str) or method.lower() not in _METHODS:
        raise UnpricedFormError(f"quant_method {shown(method)}")
    return _METHODS[method.lower()](raw)


def _kv_bits(stated: Any) -> float | None:
    if stated in (None, False, "", "none", "auto"):
        return None
    if isinstance(stated, Mapping):
        bits, size = stated.get("num_bits"), stated.get("group_size")
        shared = 8.0 / size if isinstance(size, int) and size > 0 else 0.0
        return None if bits is None else _whole(bits, "num_bits of keys and values") + shared
    read_bits = {"FP8": 8.0, "INT8": 8.0, "NVFP4": 4.5, "MXFP8": 8.25, "INT4": 4.0}.get(
        str(stated).upper().split("_")[0]
    )
    if read_bits is None:
        raise UnpricedFormError(f"keys and values in {shown(stated)}")
    return read_bits


def _texts(raw: Mapping[str, Any], key: str) -> list[str]:
    value = raw.get(key)
    value = [value] if isinstance(value, str) else value
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list | tuple) else []


class _Patterns:
    """Patterns of modules: names of parts of a path, globs, regular expressions behind "re:"."""

    def __init__(self, patterns: Iterable[str]):
        self._plain: set[str] = set()
        self._globs: list[re.Pattern[str]] = []
        self._expressions: list[re.Pattern[str]] = []
        for raw in patterns:
            # Decoders within networks that also see have a part more in their names.
            pattern = raw.replace("language_model.", "").replace("language_model\\.", "")
            if pattern.startswith("re:"):
                try:
                    self._expressions.append(re.compile(pattern[3:]))
                except re.error as error:
                    raise UnpricedFormError(f"module {shown(raw)}: {error}") from error
            elif any(sign in pattern for sign in "*?["):
                self._globs.append(re.compile(fnmatch.translate(pattern.removeprefix("model."))))
            else:
                self._plain.add(pattern.removesuffix(".weight").strip("."))

    def match(self, module: str) -> bool:
        """Whether one of them names the module, or a module that it is a part of."""
        parts = module.split(".")
        ends = range(1, len(parts) + 1)
        if any(".".join(parts[i:j]) in self._plain for j in ends for i in range(j)):
            return True
        first = 1 if parts[0] == "model" else 0
        wholes = [".".join(parts[first:j]) for j in ends if j > first]
        if any(glob.match(whole) for glob in self._globs for whole in (*wholes, module)):
            return True
        return any(one.match(module) for one in self._expressions)


#: Parameter of a layer -> kinds of weight that it is counted as. Those of latent attention are told apart by their sizes.
_KINDS_OF = {
    **{name: (name,) for name in ("q", "k", "v", "o", "gate", "up", "down", "expert_gate", "expert_up", "expert_down")},
    **{"q_down": ("q",), "q_up": ("q",), "kv_down": ("k",), "k_up": ("k",), "v_up": ("v",)},
    **{"in_qkv": ("q", "k", "v"), "in_z": ("q",), "out": ("o",)},
    **{"index_q": ("q",), "index_k": ("k",)},
    **dict.fromkeys(("shared_gate", "shared_up", "shared_down"), ("shared",)),
}
_ATTENTION = ("q", "k", "v", "o", "q_down", "q_up", "kv_down", "k_up", "v_up")
_LINEAR = ("in_qkv", "in_z", "out")
_INDEX = ("index_q", "index_k")
_DENSE = ("gate", "up", "down")


def _parameter_sizes(a: Architecture) -> dict[tuple[str, str], float]:
    """(parameter, kind) -> weights in a layer, where a kind has several; 1 for all others."""
    shape, linear = attention_shape(a), linear_shape(a)
    sizes = {
        ("q", "q"): a.hidden_size * shape.query_size,
        ("q_down", "q"): a.hidden_size * a.q_lora_rank,
        ("q_up", "q"): a.q_lora_rank * shape.query_size,
        ("kv_down", "k"): a.hidden_size * shape.cached_elements,
        ("k_up", "k"): a.kv_lora_rank * a.num_heads * a.head_dim,
        ("in_qkv", "q"): a.hidden_size * linear.keys,
        ("in_z", "q"): a.hidden_size * linear.values,
        ("index_q", "q"): (a.q_lora_rank or a.hidden_size) * a.index_heads * a.index_head_dim,
        ("index_k", "k"): a.hidden_size * a.index_head_dim,
    }
    return {key: float(size) for key, size in sizes.items()}


def _modules(family: Family, spec: NetworkSpec) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Of each layer (parameter, kind of weight, names that its module may have)."""
    row = family.running or family.names
    tensors = dict(TENSORS["latent"] if row is None else row.tensors)
    holders: dict[str, list[str]] = {}
    for tensor, held in {} if row is None else {**row.fused, **row.stacked}.items():
        for name in held:
            holders.setdefault(name, []).append(tensor)
    attention = {"q", "k", "v", "o"}
    if (latent := spec.latent) is not None:
        attention = {"o", "kv_down", "k_up", "v_up"} | ({"q"} if latent.query_rank is None else {"q_down", "q_up"})
    for layer, (is_linear, mixture) in enumerate(zip(spec.linear_layers, spec.expert_layers, strict=True)):
        has = lambda which, absent, layer=layer: absent if which is None else which[layer]
        for name, kinds in _KINDS_OF.items():
            if name in _INDEX:
                present = has(spec.indexes, False)
            elif name in _ATTENTION + _LINEAR:
                present = has(spec.attends, True) and name in (_LINEAR if is_linear else attention)
            else:
                present = has(spec.feeds, True) and (name not in _DENSE) == mixture
            if not present or name not in tensors:
                continue
            named = [tensors[name], *holders.get(name, ())]
            paths = tuple(tensor.format(layer=layer, expert=0).removesuffix(".weight") for tensor in named)
            for kind in kinds:
                yield name, kind, paths


def stored_form(
    quantization: Mapping[str, Any], family: Family, spec: NetworkSpec, a: Architecture
) -> StoredForm | None:
    """How a release stores a network's weights and cache; None: in 16 bits.

    Args:
        quantization: a release's `quantization_config`, or the content of `hf_quant_config.json`.
        family, spec: of the decoder's config.json.
        a: the network's sizes.
    Raises:
        UnpricedFormError: a form that is not known here, or one that names no matrix of the network.
    """
    recipe = _recipe(quantization)
    kv = _kv_bits(recipe.kv)
    ignored = _Patterns(recipe.ignored)
    groups = [(None if targets is None else _Patterns(targets), form) for targets, form in recipe.groups]
    hidden = float(a.hidden_size)

    def form_of(paths: tuple[str, ...]) -> _Form | None:
        if any(ignored.match(path) for path in paths):
            return None
        chosen = (form for targets, form in groups if targets is None or any(map(targets.match, paths)))
        return next(chosen, None)

    sizes = _parameter_sizes(a)
    total: dict[str, list[float]] = {}
    used: dict[str, tuple[float, _Form]] = {}
    head: tuple[tuple[str, str, tuple[str, ...]], ...] = (("lm_head", "lm_head", ("lm_head",)),)
    for name, kind, paths in (*_modules(family, spec), *(() if spec.tie_embeddings else head)):
        form, size = form_of(paths), sizes.get((name, kind), 1.0)
        bits = UNCOMPRESSED_BITS if form is None else form.bits(hidden)
        counts = total.setdefault(kind, [0.0, 0.0])
        counts[0], counts[1] = counts[0] + size * bits, counts[1] + size
        if form is not None:
            share = used.get(form.name, (0.0, form))[0]
            used[form.name] = (share + _weight(kind, a), form)
    if groups and not used:
        raise UnpricedFormError(f"its {groups[0][1].name}, which names no matrix of this network")
    if not used and kv is None:
        return None
    weight_bits = dict.fromkeys(KINDS, UNCOMPRESSED_BITS)
    weight_bits |= {kind: bits / size for kind, (bits, size) in total.items() if size}
    forms = [form for _, form in sorted(used.values(), key=lambda entry: -entry[0])]
    return StoredForm(
        name=" and ".join(form.name for form in forms) or "16 bits",
        weight_bits=weight_bits,
        kv_bits=kv,
        left_out=tuple(
            words for kind, words in _NAMED_KINDS.items() if kind in total and weight_bits[kind] == UNCOMPRESSED_BITS
        ),
        kernels=forms[0].kernels if forms else None,
        block=next((form.block for form in forms if form.block), None),
    )


def _weight(kind: str, a: Architecture) -> float:
    """How much a kind counts when the form of most weights is asked for."""
    if kind.startswith("expert"):
        return float(a.num_experts) * float(a.expert_intermediate_size)
    return float(a.hidden_size)
