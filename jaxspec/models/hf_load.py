"""Open a Hugging Face directory, or a container packed from one, as a network: configuration, parameters, tokenizer."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from hwmodels.networks import Family
from jaxspec.errors import InputError
from jaxspec.formats.container import Container, Part
from jaxspec.models.checkpoint_files import STORED_DTYPES, CheckpointFiles, ContainerFiles, TensorTable, check_tied_head
from jaxspec.models.coded import aligned, coded
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Network, Params
from jaxspec.models.described import NamedTensors, checked_names, described_in, packed_in, unread_names
from jaxspec.models.matrix import Matrix, is_matrix
from jaxspec.models.packed_tensors import packed_in_bits
from jaxspec.models.stored_parameters import Path as ParameterPath
from jaxspec.models.stored_parameters import StoredParameter, network_parameters
from jaxspec.models.streamed import Streamed, stays_in_host
from jaxspec.models.tokenizer import Tokenizer, load_tokenizer
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["check_finite", "entries_of", "read_stacked"]


def read_stacked(
    names: list[str],
    parameter: StoredParameter,
    files: TensorTable,
    wanted: np.dtype | None,
    *,
    finite: bool = False,
) -> np.ndarray:
    """A parameter's rows of tensors of one form along a new leading axis; only one tensor is held beside the result.

    Args:
        finite: see `check_finite`.
    Raises:
        InputError: a value overflows the number format that is wanted, or is not finite.
    """
    first = files.tensors[names[0]]
    out = aligned((len(names), *parameter.part_shape), np.dtype(wanted or STORED_DTYPES[first.dtype]))
    for layer, name in enumerate(names):
        tensor = parameter.part_of(files.read(name))
        with np.errstate(all="ignore"):  # overflow is reported below; a NaN stays one
            out[layer] = tensor
        if finite:
            check_finite(tensor, name, files)
        if out.dtype != tensor.dtype and not np.array_equal(np.isinf(out[layer]), np.isinf(tensor)):
            raise InputError(
                f"tensor {name!r} in {files.tensors[name].path} overflows {out.dtype}; every value must fit: "
                "load as float32 or keep the stored dtype"
            )
    return out


def check_finite(tensor: np.ndarray, name: str, files: TensorTable) -> None:
    """A tensor holds numbers alone: a network with anything else says nothing, or the same whatever its draft is.

    Raises:
        InputError: it holds NaN or infinities.
    """
    bits = 8 * tensor.dtype.itemsize
    infinity = int(np.array(np.inf, tensor.dtype).view(f"u{tensor.dtype.itemsize}"))
    # By the largest patterns of either sign, which takes no memory: NaN and infinities are above all numbers.
    largest = (tensor.view(f"{kind}{tensor.dtype.itemsize}").max(initial=0) for kind in "iu")
    if any(int(found) >= least for found, least in zip(largest, (infinity, infinity | 1 << (bits - 1)))):
        count = np.count_nonzero(~np.isfinite(tensor.astype(np.float32)))
        raise InputError(
            f"tensor {name!r} in {files.tensors[name].path} holds NaN or infinities ({count} of {tensor.size} values); every "
            "weight must be a finite number: fetch the file again, or convert the checkpoint anew"
        )


def coded_stack(
    names: list[str], parameter: StoredParameter, files: TensorTable, *, finite: bool = False
) -> Matrix | None:
    """A parameter as the codes and scales that its matrices are stored in; None: some are not, or in forms unlike each other.

    Args:
        finite: see `check_finite`.
    """
    if parameter.unit_axis or not files.in_codes.keys() >= set(names):
        return None
    found = []
    for name in names:
        codes = files.codes(name)
        codes = codes if parameter.fused is None else codes.rows(parameter.fused.indices)
        if codes is None:
            return None
        if finite and not codes.surely_within(files.in_codes[name].dtype):
            check_finite(files.read(name), name, files)
        found.append(codes)
        files.release()
    return coded(found, parameter.lead, files.in_codes[names[0]].dtype)


def entries_of(
    names: list[str],
    parameter: StoredParameter,
    files: TensorTable,
    wanted: np.dtype | None,
    *,
    finite: bool = False,
) -> list[np.ndarray] | np.ndarray:
    """A parameter matrix by matrix, or outside the layers row by row; where they are as wanted, views of the tensors.

    Arguments and errors as of `read_stacked`.
    """
    if wanted in (None, STORED_DTYPES[files.tensors[names[0]].dtype]):
        found = [parameter.part_of(files.read(name)) for name in names]
        for name, tensor in zip(names, found) if finite else ():
            check_finite(tensor, name, files)
            files.release()
    else:
        found = [read_stacked([name], parameter, files, wanted, finite=finite)[0] for name in names]
    if parameter.of_layers is None:
        return found[0]
    whole = parameter.parts is None and parameter.lead is not None and len(parameter.lead) > 1
    return [expert for layer in found for expert in layer] if whole else found


#: Whether matrices stay in host memory: none, those of the layers, or all.
Stream = bool | Literal["all"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LoadedModel:
    """A network read from a directory.

    Attributes:
        config: static shape.
        params: as made by `init_params`; each leaf has its stored dtype unless another was asked for.
        family: the entry of the families' table that read it.
        directory: where it came from; the file, for a container.
        part: "draft" if the parameters are those of a container's draft.
        bytes_read: of a container, for these parameters; None for a directory.
        rounded: whether the files have more bits of some parameters.
        exact: places of parameters whose float32 values are what a container stores in fewer bits; rounded to 16 bits they
            would be those of another network.
        packed: formats of fewer bits that matrices of the checkpoint are stored in. Where `config.in_codes` says so the
            parameters are such codes, otherwise the bfloat16 values that they stand for.
    """

    config: DecoderConfig
    params: Params
    family: Family
    directory: Path
    part: Part = "target"
    bytes_read: int | None = None
    rounded: bool = False
    exact: frozenset[ParameterPath] = frozenset()
    packed: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        stored = "".join(f", {form}" for form in sorted(self.packed))
        return f"<{self.part} of {self.family.name}: {self.config.num_parameters():,} parameters{stored}; in {self.directory}>"

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer, opened at the first use, so that a network without one still runs on token ids.

        Raises:
            InputError: see `load_tokenizer`.
        """
        return load_tokenizer(self.directory, vocab_size=self.config.vocab_size)

    def module(self) -> Network:
        """A Flax module of the parameters: called with tokens it gives logits, and optax trains it.

        Weights keep the stored type: training wants those of `load(..., dtype="float32")`.

        Raises:
            InputError: matrices that are streamed or in codes, which no module holds.
        """
        if any(map(is_matrix, jax.tree.leaves(self.params, is_leaf=is_matrix))):
            raise InputError(
                "a network that is streamed or in codes is no module, which holds its weights; load it without stream, "
                "with a dtype"
            )
        return Network.of(self.config, self.params)


def load_directory(
    path: str | os.PathLike[str],
    *,
    dtype: Any = None,
    stream: Stream = False,
    finite: bool = False,
    codes: bool = True,
) -> LoadedModel:
    """Read config.json and the safetensors files of a directory, opening no pickle and going to no hub.

    Weights are memory-mapped and copied once, tensor by tensor, into arrays with a leading layer axis.

    Args:
        path: a directory as `save_pretrained` writes it, one file or shards, of a family whose networks run here; of a network
            around a text decoder, that alone is read. Or a GGUF file.
        dtype: of all parameters: bfloat16, float16 or float32; None keeps what is stored, codes too (see `Coded`).
        stream: leave the matrices of the layers in the files, for programs to fetch one by one (see `Streamed`), of codes the
            16-bit values; "all": the
            embedding and the head too, for a mesh whose devices each take their part.
        finite: refuse weights that are NaN or infinite, which reads those that are streamed too.
        codes: False: of a GGUF file's blocks and of gpt-oss's MXFP4 the nearest bfloat16 values, of whose bits drafts are made.
    Returns:
        the network; its parameters lie on the default device, those that are streamed aside.
    Raises:
        InputError: anything about the directory or `dtype` that cannot be used, in one line.
    Departs: where config.json ties the head to the embedding and lm_head.weight is stored nevertheless, an equal copy
        is dropped and another one is an error, since transformers 4 would tie them and transformers 5 would not.
    """
    wanted, directory = parameter_dtype(dtype), Path(path)
    found = described_in(directory)
    files = CheckpointFiles(directory, exact=wanted == np.float32, codes=codes)
    tensors = found.tensors(files, directory, codes=codes)
    params = _read_params(found.config, tensors, directory, wanted, stream=stream, finite=finite)
    config, packed = found.stored_config(tensors, wanted), packed_in_bits(files) | files.quantized
    return LoadedModel(config=config, params=params, family=found.family, directory=directory, packed=packed)


def load_container(
    path: str | os.PathLike[str],
    *,
    part: Part = "target",
    dtype: Any = None,
    stream: Stream = False,
    finite: bool = False,
) -> LoadedModel:
    """Open a container (see `jaxspec.formats.container`) as the network that was packed, or as its draft.

    Where its scheme stores keys and values in blocks that share exponents, so does the network's configuration.

    Args:
        part: "draft" reads the draft's sections of the file and no others; `bytes_read` says how many bytes that took. Where
            the embedding is a divided head too, tokens are looked up in it whole.
        dtype: as for `load_directory`.
        stream: leave the decoded matrices of the layers in host memory.
        finite: as for `load_directory`.
    Raises:
        InputError: the file is no whole container, holds no network of a known family, or has no draft.
    """
    wanted = parameter_dtype(dtype)
    with Container(path) as container:
        if part == "draft" and not container.has_draft:
            raise InputError(
                f"{container.path} was packed with scheme {container.scheme!r}, which has no draft; open the target, "
                "or pack it with cassandra1"
            )
        found = packed_in(container)
        files = ContainerFiles(container, part)
        tensors = found.tensors(files, container.path, codes=False)
        params = _read_params(
            found.config,
            tensors,
            container.path,
            wanted,
            stream=stream,
            finite=finite,
            copies_equal=part == "target",
        )
        if part == "draft" and found.config.tie_embeddings and SCHEME_FACTS[container.scheme].head:
            whole = found.tensors(ContainerFiles(container, "target"), container.path, codes=False)
            params |= {"lm_head": params["embed"], "embed": _embedding(found.config, whole, container.path, wanted)}
        shared = SCHEME_FACTS[container.scheme].shared_exponents
        config = dataclasses.replace(found.stored_config(tensors, wanted), shared_kv_exponents=shared)
        bytes_read = container.bytes_read
        exact = frozenset() if wanted is not None else _exact(found.config, tensors)
    return LoadedModel(
        config=config,
        params=params,
        family=found.family,
        directory=container.path,
        part=part,
        bytes_read=bytes_read,
        exact=exact,
        packed=packed_in_bits(files),
    )


def _exact(config: DecoderConfig, tensors: NamedTensors) -> frozenset[ParameterPath]:
    """Places of parameters that a container gives back in a wider type than they were packed in."""
    stored = network_parameters(config, tensors.row)
    wider = lambda name: tensors.files.tensors[name].packed_dtype is not None
    return frozenset(path for path, parameter in stored.items() if any(map(wider, parameter.names())))


def _read_params(
    config: DecoderConfig,
    tensors: NamedTensors,
    source: Path,
    wanted: np.dtype | None,
    *,
    stream: Stream,
    finite: bool,
    copies_equal: bool = True,
) -> Params:
    """The parameters of a network; a head that is tied to the embedding may be stored beside it.

    Args:
        copies_equal: such a head must equal it; in a draft, which has a part of the one and all of the other, it does not.
    """
    row, files = tensors
    head, embedding = row.tensors["lm_head"], row.tensors["embed"]
    stored = network_parameters(config, row)
    tied = config.tie_embeddings
    shapes = {path: parameter.stacked_shape for path, parameter in stored.items()}
    in_host = {path for path, shape in shapes.items() if stream and stays_in_host(path, shape, tied=tied)}
    if stream == "all":
        in_host |= {path for path, shape in shapes.items() if path[0] != "layers" and len(shape) > 1}
    copies = unread_names(config, row, files)
    params = read_tensors(stored, files, source, wanted, copies=copies, in_host=in_host, finite=finite)
    if tied and copies_equal and head in files.tensors:
        check_tied_head(files, head, embedding)
    return params


def _embedding(config: DecoderConfig, tensors: NamedTensors, source: Path, wanted: np.dtype | None) -> Any:
    """The embedding alone."""
    row, files = tensors
    stored = {("embed",): network_parameters(config, row)[("embed",)]}
    return read_tensors(stored, files, source, wanted, copies=set(files.tensors))["embed"]


def read_tensors(
    stored: Mapping[ParameterPath, StoredParameter],
    files: TensorTable,
    source: Path,
    wanted: np.dtype | None = None,
    *,
    copies: set[str] | frozenset[str] = frozenset(),
    in_host: Collection[ParameterPath] = (),
    finite: bool = False,
) -> Params:
    """Check that the tensors are those of the parameters, then read them.

    Args:
        source: what errors call the checkpoint.
        wanted: dtype of all parameters; None keeps what is stored.
        copies: tensors that may be there and are not read.
        in_host: places of parameters that stay in host memory.
        finite: refuse values that are NaN or infinite.
    Raises:
        InputError: a tensor is missing, left over, of another shape or of an unknown number format, or such a value.
    """
    found = checked_names(stored, copies, files, source, mixed=wanted is not None)
    params: Params = {}
    for path, names in found.items():
        node = params
        for key in path[:-1]:
            node = node.setdefault(key, {})
        if path in in_host:
            entries = entries_of(names, stored[path], files, wanted, finite=finite)
            node[path[-1]] = Streamed.of(entries, stored[path].lead)
        else:
            held = None if wanted is not None else coded_stack(names, stored[path], files, finite=finite)
            if held is not None:
                node[path[-1]] = held
                continue
            values = read_stacked(names, stored[path], files, wanted, finite=finite)
            node[path[-1]] = jax.device_put(values.reshape(stored[path].stacked_shape), may_alias=True)
    return params


def parameter_dtype(dtype: Any) -> np.dtype | None:
    """The number format that parameters are asked in.

    Raises:
        InputError: none that checkpoints have.
    """
    if dtype is None:
        return None
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted not in STORED_DTYPES.values():
        allowed = ", ".join(str(known) for known in STORED_DTYPES.values())
        raise InputError(f"dtype {dtype!r} came; allowed are {allowed} or None: convert the parameters afterwards")
    return wanted
