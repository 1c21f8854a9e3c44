"""What `jaxspec calibrate` measures, in which order, and how noisy that is."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from hwmodels import Architecture
from jaxspec.errors import InputError, one_line
from jaxspec.host import programs
from jaxspec.host.config import FORMATS, CalibrateConfig
from jaxspec.host.programs import (
    CYCLE_SLOTS,
    Timed,
    Timing,
    companion_of,
    cycle_timings,
    dense_config,
    matrices_of,
    measure,
    probes_of,
    product_program,
    random_params,
)
from jaxspec.host.table import Row
from jaxspec.models.apart import LAYERS
from jaxspec.models.stored import SMALL
from jaxspec.partial_files import read_json, to_json, write_text
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays, Stages

__all__ = [
    "QUIET_SPREAD",
    "ROWS",
    "SHAPES",
    "Group",
    "Measured",
    "Noise",
    "begun_here",
    "device_memory_bytes",
    "groups_of",
    "hash_of",
    "load_per_core",
    "machine_name",
    "measure_machine",
    "measured_title",
    "noise_of",
    "peak_device_bytes",
    "processor_name",
    "whole_machine_name",
]

# The machine that a program runs on: what it is called, and how busy it is.

#: Where the system does not say: a common size.
_UNKNOWN_BYTES = 8_000_000_000

#: Where Linux tells how much memory this process may take.
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def machine_name() -> str:
    """Backend, device, cores and processor, as in "cpu, 2 cores, x86_64"."""
    device = jax.devices()[0]
    kind = [] if device.device_kind == device.platform else [device.device_kind]
    return ", ".join([device.platform, *kind, f"{os.cpu_count()} cores", platform.machine()])


def device_memory_bytes() -> int:
    """What programs may take of the first device's memory; of a CPU's, what this process may take, divided among the devices
    that it makes of it."""
    devices = jax.local_devices()
    device = devices[0]
    memory_limit = (device.memory_stats() or {}).get("bytes_limit")
    if memory_limit is not None or device.platform != "cpu":
        return int(memory_limit or _UNKNOWN_BYTES)
    try:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):  # not on every system
        memory_bytes = _UNKNOWN_BYTES
    limit = _LIMIT.read_text(encoding="utf-8").strip() if _LIMIT.is_file() else ""
    return (min(memory_bytes, int(limit)) if limit.isdigit() else memory_bytes) // len(devices)


def peak_device_bytes() -> int | None:
    """The most that this process has had in use of the first device's memory; None where JAX does not say, as on CPUs."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def processor_name() -> str:
    """The processor's own name where the system tells it, else its family."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return " ".join(next(named, "").split()) or platform.machine()


def whole_machine_name() -> str:
    """Processor and `machine_name`, by which times are known to be of this machine."""
    return f"{processor_name()} ({machine_name()})"


def measured_title() -> str:
    """Title of a device file that was measured on this machine, by which it is known again."""
    return f"{whole_machine_name()}, measured"


def load_per_core() -> float | None:
    """Tasks that wanted to run in the last minute, over the cores: above 1, they took turns; None where nothing says so."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not on every system
        return None


#: Rows of products: all few ones, where kernels change; around multiples of 16, where they pad; few many.
ROWS = (*range(1, 11), 12, 16, 17, 18, 24, 32, 33, 40, 48, 64, 80, 96, 128, 144, 192, 256, 272, 384, 512)


_FEW_ROWS = (1, 2, 3, 5, 8, 9, 16, 17, 32, 80, 128, 512)


_FAR_ROWS = (1, 2, 4, 8, 17, 64)


#: Sequences and new tokens of each, of attention and steps.
SHAPES = ((1, 1), (1, 2), (1, 5), (1, 9), (1, 17), (16, 1), (16, 5), (16, 9))


_FEW_SHAPES = ((1, 1), (1, 2), (1, 9), (16, 1))


_CONTEXTS = (64, 256, 1024)


#: Tokens that timed cycles draft.
_DRAFTED = (1, 4)


#: Layers of the networks that draft them; 0: a lookup does.
_DRAFT_LAYERS = (0, 1, 3)


#: Bytes of a stack of matrices: enough to leave the cache of common processors, and as many as a small network has, in so many
#: matrices at most.
_FAR_BYTES, _NEAR_BYTES, _MOST_NEAR = 192e6, 12e6, 32


#: Stacks between them, of one matrix, and their rows: they show where a cache ends, and so what a draft costs its target.
_BETWEEN_BYTES, _BETWEEN_ROWS = (17e6, 24e6, 34e6, 48e6, 68e6), (1, 5)


#: The most matrices of a stack.
_MOST_LAYERS = 4096


@dataclasses.dataclass(frozen=True)
class Group:
    """What is timed side by side; the name says where it is kept.

    Attributes:
        rows: without their times.
        clock: from a number of repeats to the time of each.
    """

    name: str
    rows: tuple[Row, ...]
    clock: Callable[[int], list[Timing]]


class _Case(NamedTuple):
    """A row without its time, and how to make the program that is timed."""

    row: Row
    program: Callable[[], Timed]


def _group(name: str, cases: Sequence[_Case]) -> Group:
    """Of programs that take turns."""
    clock = lambda repeats: measure([case.program() for case in cases], repeats=repeats, empty=programs.turn_program())
    return Group(name, tuple(case.row for case in cases), clock)


def groups_of(config: CalibrateConfig, networks: Mapping[str, Architecture], *, few: bool) -> list[Group]:
    """All that is measured.

    Args:
        networks: by name, leaves are numbers.
        few: whether a short run was asked for: fewer rows and shapes.
    """
    rows = [count for count in (_FEW_ROWS if few else ROWS) if count <= config.rows]
    held = config.widest
    groups = _products(config, networks, rows) + _attention(networks, _FEW_SHAPES if few else SHAPES, held)
    # A loop spends as much on networks of any width, and it shows best beside short steps. These are decoding's own then.
    smallest = min(networks, key=lambda name: sum(inner * outer for inner, outer in matrices_of(networks[name])))
    for name, network in networks.items():
        groups += (_cycles if name == smallest else _steps)(name, network, held, few=few)
    for name, network in companion_of(config, networks).items():
        groups += _steps(name, network, held, few=few)[:1]
    return [*groups, _streams(), _lookups(), _sampling(), _loops()]


def _products(config: CalibrateConfig, networks: Mapping[str, Architecture], rows: Sequence[int]) -> list[Group]:
    shapes = list(dict.fromkeys(shape for network in networks.values() for shape in matrices_of(network)))
    groups = []
    for name in sorted(config.formats, key=lambda name: -FORMATS[name]):
        counts = rows if name == config.widest else [count for count in rows if count in _FEW_ROWS]
        for shape in shapes:
            # As the matrices of a small network lie, and no more of them.
            groups.append(_product_group(name, shape, counts, _NEAR_BYTES, _MOST_NEAR))
        smallest, middle = shapes[0], sorted(shapes, key=lambda shape: shape[0] * shape[1])[len(shapes) // 2]
        for shape in dict.fromkeys((smallest, middle)):
            far = [count for count in rows if count in _FAR_ROWS]
            groups.append(_product_group(name, shape, far, _FAR_BYTES, _MOST_LAYERS))
        if name == config.widest:
            between = _between(FORMATS[name], shapes)
            groups += [_product_group(name, *one, programs.MOST_APART) for one in between]
    return list({group.name: group for group in groups}.values())


def _between(bits: float, shapes: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], Sequence[int], float]]:
    """Matrix, rows and bytes of stacks around a cache's end, of the largest matrix of which several fit."""
    size = lambda shape: shape[0] * shape[1] * bits / 8
    few = min(shapes, key=size)
    matrix = max((shape for shape in shapes if size(shape) <= _BETWEEN_BYTES[0] / 4), key=size, default=few)
    return [(matrix, _BETWEEN_ROWS, total) for total in _BETWEEN_BYTES if size(matrix) <= total / 4]


def _product_group(
    weight_format: str, shape: tuple[int, int], rows: Sequence[int], total_bytes: float, most: int
) -> Group:
    bits, (inner, outer) = FORMATS[weight_format], shape
    one = inner * outer * bits / 8
    layers = int(max(2, min(most, round(total_bytes / one))))
    cases = []
    for count in rows:
        row = Row(
            "product",
            float("nan"),
            weight_bits=bits,
            batch=1.0,
            tokens=float(count),
            inner=float(inner),
            outer=float(outer),
            read_bytes=one * layers,
        )
        make = lambda count=count: programs.product_program(count, inner, outer, layers, weight_format)
        cases.append(_Case(row, make))
    return _group(f"product/{weight_format}-{inner}x{outer}-{layers}", cases)


def _attention(networks: Mapping[str, Architecture], shapes: Sequence[tuple[int, int]], held: str) -> list[Group]:
    heads: dict[tuple[int, int, int], bool] = {}
    for n in networks.values():
        of = int(n.num_heads), int(n.num_kv_heads), int(n.head_dim)
        heads[of] = heads.get(of, False) or _is_apart(n, held)
    groups = []
    for (query_heads, key_heads, size), apart in heads.items():
        of = {"heads": query_heads, "kv_heads": key_heads, "head_dim": size}
        for context in _CONTEXTS:
            cases = []
            for batch, tokens in shapes:
                shape = {"batch": batch, "tokens": tokens, **of}
                numbers: dict[str, Any] = {name: float(number) for name, number in shape.items()}
                row = Row("attention", float("nan"), context_tokens=float(context), **numbers)
                make = functools.partial(programs.attention_program, **shape, context=context, layers=4, apart=apart)
                cases.append(_Case(row, make))
            groups.append(_group(f"attention/{query_heads}-{key_heads}-{size}-{context}", cases))
    return groups


def _is_apart(network: Architecture, held: str) -> bool:
    """Whether the network decodes with matrices and KV of its layers apart (see `as_computed`), which 16-bit ones do not."""
    *layer, head = (inner * outer for inner, outer in matrices_of(network))
    is_small = int(network.num_layers) <= LAYERS and int(network.num_layers) * sum(layer) + 2 * head <= SMALL
    return held == "float32" and is_small


def _steps(name: str, network: Architecture, held: str, *, few: bool) -> list[Group]:
    groups, shapes = [], _FEW_SHAPES if few else SHAPES
    for layers, vocab, context in probes_of(network, held):
        config, cases, whole = dense_config(network, layers, vocab), [], _network_row("step", name, layers, vocab, held)
        for batch, tokens in shapes:
            row = dataclasses.replace(whole, batch=float(batch), tokens=float(tokens), context_tokens=float(context))
            make = lambda batch=batch, tokens=tokens, config=config, context=context: programs.step_program(
                random_params(config, held), config, batch=batch, tokens=tokens, context=context
            )
            cases.append(_Case(row, make))
        groups.append(_group(f"step/{hash_of(name)}-{layers}-{vocab}-{context}", cases))
    return groups


def _network_row(part: str, name: str, layers: int, vocab: int, held: str) -> Row:
    """A row of a whole network, of no shape yet."""
    sizes = {"layers": float(layers), "vocab_size": float(vocab)}
    return Row(part, float("nan"), weight_bits=FORMATS[held], architecture=name, **sizes)


def _cycles(name: str, network: Architecture, held: str, *, few: bool) -> list[Group]:
    """Cycles with a lookup and with small networks as drafts, and the steps that took turns with them; of further networks of
    these widths with a lookup alone, for their steps' sake."""
    first, *others = dict.fromkeys((layers, vocab) for layers, vocab, _ in probes_of(network, held))
    drafted = [(*first, draft_layers) for draft_layers in _DRAFT_LAYERS] + [(*other, 0) for other in others]
    batches = (1,) if few else (1, 16)
    return [_cycle_group(name, network, held, *sizes, batch) for sizes in drafted for batch in batches]


def _cycle_group(
    name: str, network: Architecture, held: str, layers: int, vocab: int, draft_layers: int, batch: int
) -> Group:
    """Cycles of one network, draft and number of sequences, and their steps."""
    config, shape = dense_config(network, layers, vocab), {"batch": float(batch), "context_tokens": float(CYCLE_SLOTS)}
    step = dataclasses.replace(_network_row("step", name, layers, vocab, held), **shape)
    cycle = dataclasses.replace(step, part="cycle", draft_layers=float(draft_layers))
    rows = [dataclasses.replace(step, tokens=length + 1.0) for length in (0, *_DRAFTED)]
    rows += [dataclasses.replace(cycle, tokens=float(length)) for length in _DRAFTED]
    clock = lambda repeats: cycle_timings(
        config, held, draft_layers=draft_layers, lengths=_DRAFTED, batch=batch, repeats=repeats
    )
    return Group(f"cycle/{hash_of(name)}-{layers}-{vocab}-{draft_layers}-{batch}", tuple(rows), clock)


def hash_of(name: str) -> int:
    """A number for a name that may be a path, the same on every machine."""
    return sum((place + 1) * ord(letter) for place, letter in enumerate(name))


def _streams() -> Group:
    sizes = (1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)
    cases = [
        _Case(Row("stream", float("nan"), read_bytes=float(size)), lambda size=size: programs.stream_program(size))
        for size in sizes
    ]
    return _group("stream/all", cases)


def _lookups() -> Group:
    cases = []
    for rows, vocab, hidden in ((1, 256, 256), (16, 256, 256), (64, 4096, 1024), (256, 4096, 1024)):
        row = Row("lookup", float("nan"), batch=1.0, tokens=float(rows), inner=float(hidden), vocab_size=float(vocab))
        cases.append(
            _Case(row, lambda rows=rows, vocab=vocab, hidden=hidden: programs.lookup_program(rows, vocab, hidden))
        )
    return _group("lookup/all", cases)


def _sampling() -> Group:
    cases = []
    for rows, vocab in ((1, 256), (9, 256), (64, 256), (1, 4096), (9, 4096), (1, 32768), (5, 32768)):
        row = Row("sampling", float("nan"), batch=1.0, tokens=float(rows), vocab_size=float(vocab))
        cases.append(_Case(row, lambda rows=rows, vocab=vocab: programs.sampling_program(rows, vocab)))
    return _group("sampling/all", cases)


def _loops() -> Group:
    turn = _Case(Row("turn", float("nan")), programs.turn_program)
    return _group("loops/all", (turn, _Case(Row("launch", float("nan")), programs.launch_program)))


#: Spread between the quartiles of a program's repeats, over their median, that is usual on a quiet machine at most.
QUIET_SPREAD = 0.10


#: Share of programs that may spread by more than three times that.
_LARGE, _LARGE_SHARE = 3 * QUIET_SPREAD, 0.10


#: How far a program that is timed again and again may drift, between the tenth and the ninetieth of a hundred.
_DRIFT = 0.25


@dataclasses.dataclass(frozen=True)
class Noise:
    """What was seen.

    Attributes:
        spread: median over programs of the distance of their quartiles, over their median.
        large_share: of programs that spread by much more.
        drift: of one program that was timed before each group: ninth decile over first, less one.
        load: tasks that wanted to run when the measurement began, over the cores; None where nothing says so.
        believed: whether the times can be.
    """

    spread: float
    large_share: float
    drift: float
    load: float | None
    believed: bool

    @property
    def words(self) -> str:
        """What was seen and what to do, in a sentence."""
        seen = (
            f"repeats of a program spread by {100 * self.spread:.0f} % in the median, {100 * self.large_share:.0f} % of the "
            f"programs by more than {100 * _LARGE:.0f} %, and one program drifted by {100 * self.drift:.0f} % over the run"
        )
        seen += f" (load per core at its beginning: {self.load:.1f})" if self.load is not None else ""
        if self.believed:
            return f"the machine was quiet: {seen}"
        return (
            f"the machine was too busy to be believed: {seen}; end what else runs on it and start anew with --force, or take "
            "--statistic least and more --repeats, which meets a quiet moment of each program more often"
        )


def noise_of(spreads: Sequence[float], probes: Sequence[float], load: float | None) -> Noise:
    """Judge a run.

    Args:
        spreads: of each program.
        probes: seconds of one program before each group.
    """
    spread = float(np.median(spreads)) if len(spreads) else 0.0
    large = float(np.mean(np.asarray(spreads) > _LARGE)) if len(spreads) else 0.0
    low, high = np.quantile(probes, [0.1, 0.9]) if len(probes) else (1.0, 1.0)
    drift = float(high / low - 1.0)
    believed = spread <= QUIET_SPREAD and large <= _LARGE_SHARE and drift <= _DRIFT
    return Noise(spread, large, drift, load, believed)


_MACHINE = "machine.json"


#: The program that is timed before each group: a product that every machine has.
_PROBE = (16, 256, 256, 4, "float32")


@dataclasses.dataclass(frozen=True)
class Measured:
    """A table of measured times, and how quiet the machine was.

    Attributes:
        spreads: of each row's repeats.
        compile_s: seconds of all first calls together, which compile.
        noise: None for times that a user brought.
    """

    table: list[Row]
    spreads: list[float]
    compile_s: float
    noise: Noise | None
    name: str


def begun_here(checkpoints: Path) -> None:
    """Refuse to go on with times of another machine, or to call them times of this one.

    Raises:
        InputError: the run was begun on one.
    """
    kept = checkpoints / _MACHINE
    if not kept.exists():
        return
    before, here = _read(kept)["machine"], whole_machine_name()
    if before not in (here, machine_name()):  # earlier versions did not record the processor
        raise InputError(
            f"the run in {checkpoints.parent} measured {before}, and this is {here}; start it anew with --force, or work in "
            "another directory"
        )


def measure_machine(
    config: CalibrateConfig, networks: Mapping[str, Architecture], stages: Stages, reporter: Reporter, *, few: bool
) -> Measured:
    """Time every group that is not there yet."""
    kept = stages.root / _MACHINE
    if not kept.exists():
        write_text(kept, to_json({"machine": whole_machine_name(), "load": load_per_core()}))
    load = _read(kept)["load"]
    groups, table, spreads = groups_of(config, networks, few=few), [], []
    probes, compile_s = [], 0.0
    with reporter.bar("measuring", len(groups)) as bar:
        for group in groups:
            times = stages.run(group.name, lambda group=group: _timed(group, config.repeats))
            table += _rows(group, times[config.statistic])
            spreads += times["spread"].tolist()
            probes.append(float(times["probe"][0]))
            compile_s += float(np.sum(times["first_s"]))
            bar.advance(group.name.partition("/")[2])
    return Measured(table, spreads, compile_s, noise_of(spreads, probes, load), machine_name())


def _read(kept: Path) -> dict[str, Any]:
    """On which machine a run was begun, and how busy it was."""
    try:
        stored = read_json(kept)
        if not isinstance(stored["machine"], str) or isinstance(stored["load"], (str, list, dict)):
            raise TypeError("neither a name nor a number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(kept)!r} is damaged ({one_line(error)}), so that times may be another machine's; start the run anew with "
            "--force"
        ) from error
    return stored


def _timed(group: Group, repeats: int) -> Arrays:
    (probe,) = measure([product_program(*_PROBE)], repeats=3)
    clocked = group.clock(repeats)
    numbers = {
        name: np.array([getattr(one, name) for one in clocked]) for name in ("median", "least", "spread", "first_s")
    }
    return numbers | {"probe": np.array([probe.median])}


def _rows(group: Group, seconds: Sequence[float]) -> list[Row]:
    return [dataclasses.replace(row, seconds=float(one)) for row, one in zip(group.rows, seconds, strict=True)]
