"""Which widths of a footprint a calibrated device has measured kernels for, and what to say of the others."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import jax
import numpy as np

from hwmodels.compute.roofline import unit_of
from hwmodels.compute.unit import MeasuredKernels
from hwmodels.device import Device
from hwmodels.network.architecture import EXPERT_MATRICES, Footprint

__all__ = ["KernelWidths", "kernel_remarks", "kernel_widths"]

#: Weights that no matrix product reads.
_NO_PRODUCT = ("embed", "norm")

#: Widths as close as this are one: those of a footprint are means, in single precision.
_SAME_BITS = 5e-3


@dataclasses.dataclass(frozen=True)
class KernelWidths:
    """Bits per weight and per KV element that a footprint reads from a calibrated device, in increasing order.

    Attributes:
        measured: of the kernels that the device's times are fitted to.
        interpolated: weights between two measured widths: their times are mixed.
        extrapolated: weights beyond all measured widths: the bytes of the nearest one's kernel are scaled.
        extrapolated_kv: KV elements of widths that attention is not measured with; its times are mixed, or its bytes scaled.
    """

    measured: tuple[float, ...]
    interpolated: tuple[float, ...]
    extrapolated: tuple[float, ...]
    extrapolated_kv: tuple[float, ...]


def kernel_widths(device: Device, footprint: Footprint, *, experts: bool | None = None) -> KernelWidths | None:
    """Sort a footprint's widths by what is measured on the device; on the host.

    Args:
        device: its matrix unit decides.
        footprint: leaves "*b"; a sweep's range counts with all its values.
        experts: whether the network has any. None: it is not known, and a width of experts counts where nothing else is read at
            it.
    Returns:
        None for a device that is not calibrated: it has no kernels, but rates.
    """
    kernels = unit_of(device).measured
    if kernels is None:
        return None
    kinds = _kinds_of_widths(kernels, footprint, experts)
    kv = _distinct([footprint.draft_kv_bits, footprint.target_kv_bits])
    return KernelWidths(
        measured=kernels.weight_widths,
        interpolated=tuple(sorted({bits for kind in kinds for bits in kind.interpolated})),
        extrapolated=tuple(sorted({bits for kind in kinds for bits in kind.extrapolated})),
        extrapolated_kv=tuple(
            bits for bits in kv if kernels.kv_widths and min(abs(bits - w) for w in kernels.kv_widths) > _SAME_BITS
        ),
    )


@dataclasses.dataclass(frozen=True)
class _Widths:
    """Widths of weights that have their kernels in common."""

    of_what: str
    measured: tuple[float, ...]
    interpolated: tuple[float, ...]
    extrapolated: tuple[float, ...]


def _kinds_of_widths(kernels: MeasuredKernels, footprint: Footprint, experts: bool | None) -> list[_Widths]:
    """Weights of products, and of experts where those have kernels of their own.

    A footprint has a width for experts of networks without any too.
    """
    apart = EXPERT_MATRICES if kernels.expert_widths else ()
    read: dict[bool, list[object]] = {False: [], True: []}
    for kind, bits in _read_by_products(footprint, experts):
        read[kind in apart].append(bits)
    products = _distinct(read[False])
    kinds = [_sorted_out("weights", kernels.weight_widths, products)]
    if apart:
        theirs = [bits for bits in _distinct(read[True]) if experts or bits not in products]
        kinds.append(_sorted_out("weights of experts", kernels.expert_widths, theirs))
    return kinds


def _read_by_products(footprint: Footprint, experts: bool | None) -> list[tuple[str, object]]:
    """Kinds of weights that products read, with their widths, of draft and target."""
    return [
        (kind, bits)
        for weights in (footprint.draft_weight_bits, footprint.target_weight_bits)
        for kind, bits in weights.items()
        if kind not in _NO_PRODUCT and (kind not in EXPERT_MATRICES or experts is not False)
    ]


def _sorted_out(of_what: str, measured: tuple[float, ...], widths: Iterable[float]) -> _Widths:
    others = [bits for bits in widths if min(abs(bits - own) for own in measured) > _SAME_BITS]
    between = [bits for bits in others if measured[0] < bits < measured[-1]]
    return _Widths(of_what, measured, tuple(between), tuple(bits for bits in others if bits not in between))


def kernel_remarks(
    device: Device, footprint: Footprint, *, experts: bool | None = None, unused_format: bool = True
) -> list[str]:
    """What a reader of times on this device should know, a sentence each; empty for a device that is not calibrated.

    Names a format that no weight is narrow enough for, the footprint's widths without a measured kernel, experts with another
    engine's kernels where the network has any, fits that err to one side, then what else the device's fits do not describe. Of
    experts nothing is said where the network has none, nor of kernels that are narrower than all that read its experts.

    Args:
        device, footprint, experts: as of `kernel_widths`.
        unused_format: name a format that nothing reads; False where other networks of the same run may read it.
    """
    widths, kernels = kernel_widths(device, footprint, experts=experts), unit_of(device).measured
    if widths is None or kernels is None:
        return []
    remarks = []
    if unused_format:
        remarks += _unused_format(kernels, _distinct(bits for _, bits in _read_by_products(footprint, experts)))
    remarks += [line for kind in _kinds_of_widths(kernels, footprint, experts) for line in _remarks_on(kind)]
    if widths.extrapolated_kv:
        remarks.append(
            f"extrapolated: KV of {_in_words(widths.extrapolated_kv)} bits; attention is measured with "
            f"{_in_words(kernels.kv_widths)} bits, its bytes are scaled"
        )
    narrowest = _narrowest_read(kernels, footprint)
    if experts:
        remarks += _borrowed(kernels, narrowest)
    unused = [
        one.text
        for one in kernels.expert_remarks
        if experts is False or (one.bits is not None and one.bits < narrowest - _SAME_BITS)
    ]
    fits = [text for text in kernels.remarks if text not in unused]
    return [*remarks, *_one_sided(kernels, experts, narrowest), *fits]


def _narrowest_read(kernels: MeasuredKernels, footprint: Footprint) -> float:
    """Bits per weight of the narrowest kernel of experts that a time of this footprint is made of."""
    read = [bits for kind, bits in _read_by_products(footprint, True) if kind in EXPERT_MATRICES]
    least = min(_distinct(read))
    return max((own for own in kernels.expert_widths if own <= least + _SAME_BITS), default=0.0)


def _unused_format(kernels: MeasuredKernels, widths: list[float]) -> list[str]:
    """A sentence where kernels of a format were asked for by name and no weight is read by them."""
    widest = kernels.weight_widths[-1]
    if kernels.weight_format is None or widths[0] < widest - _SAME_BITS:
        return []
    return [
        f"unused: kernels of format {kernels.weight_format} are for weights narrower than {widest:g} bits, and none is; "
        "give a scheme with fewer bits, or leave the format out"
    ]


def _borrowed(kernels: MeasuredKernels, narrowest: float) -> list[str]:
    return [
        f"borrowed: {one.bits:g}-bit experts have kernels measured with {one.borrowed_from}; no fit to this engine's is used"
        for one in kernels.spreads
        if one.part == "experts" and one.borrowed_from and one.bits >= narrowest - _SAME_BITS
    ]


def _one_sided(kernels: MeasuredKernels, experts: bool | None, narrowest: float) -> list[str]:
    """Fits whose interval had to be widened for the predicted time to lie in it."""
    return [
        f"biased: measured times of {one.part} ({one.bits:g} bits) are {one.low:.2f} to {one.high:.2f} times the predicted; "
        "intervals begin or end at the predicted time"
        for one in kernels.spreads
        if one.one_sided and (one.part != "experts" or (experts is not False and one.bits >= narrowest - _SAME_BITS))
    ]


def _remarks_on(widths: _Widths) -> list[str]:
    remarks, measured = [], widths.measured
    for nearest in dict.fromkeys((measured[0], measured[-1])):
        beyond = [bits for bits in widths.extrapolated if _nearest(measured, bits) == nearest]
        if beyond:
            remarks.append(
                f"extrapolated: {widths.of_what} of {_in_words(beyond)} bits have no measured kernel on this device; "
                f"the bytes of its {nearest:g}-bit kernel are scaled, which is optimistic"
            )
    for low, high in itertools.pairwise(measured):
        between = [bits for bits in widths.interpolated if low < bits < high]
        if between:
            remarks.append(
                f"interpolated: {widths.of_what} of {_in_words(between)} bits, between measured kernels of {low:g} and "
                f"{high:g} bits"
            )
    return remarks


def _distinct(leaves: Iterable[object]) -> list[float]:
    """Different widths among leaves, in increasing order, to a hundredth of a bit."""
    values = [np.ravel(np.asarray(jax.device_get(leaf), np.float64)) for leaf in leaves]
    return sorted({round(float(bits), 2) for of_one in values for bits in np.unique(of_one)})


def _nearest(measured: tuple[float, ...], bits: float) -> float:
    return min(measured, key=lambda own: abs(own - bits))


def _in_words(bits: Iterable[float]) -> str:
    """A few widths one by one, many as a range."""
    words = [f"{one:g}" for one in bits]
    if len(words) == 1:
        return words[0]
    return f"{words[0]} to {words[-1]}" if len(words) > 3 else f"{', '.join(words[:-1])} and {words[-1]}"
