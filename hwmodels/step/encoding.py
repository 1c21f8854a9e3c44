"""Encoding in a step: new keys and values that are stored coded, while the step runs.

Source: Cassandra, V-A and V-B: selection, exponent coding and truncation of new keys and values; "the encoder's performance is
    irrelevant" to how fast data are read.
Departs: what waits for the end of the step (the last layer's values) is encoded during the next one. Values are written in 16
    bits, see `hwmodels.network.operators.attention`; coded ones would be fewer bytes.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.encoder import encode_energy, encode_time, step_time_with_encoding
from hwmodels.device import Device
from hwmodels.network.operators import OperatorWork
from hwmodels.numerics.scalars import Number

__all__ = ["encoder_energy", "encoder_time", "time_with_encoder"]


def encoder_time(device: Device, work: OperatorWork) -> Float[Array, "*b"]:
    """Seconds in which the device's encoders encode what a step writes; 0 without encoders, and where nothing is coded.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: encoders, and work that does not say what is encoded.
    """
    if device.encoder is None:
        return jnp.zeros_like(work.flops[..., 0])
    return encode_time(device.encoder, _encoded(work))


def time_with_encoder(
    device: Device, work: OperatorWork, step_s: Float[Array, "*b"], *, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Seconds of a step that takes `step_s` without encoding: the longer of the two. Other arguments: `encoder_time`.

    Args:
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    """
    if device.encoder is None:
        return step_s
    return step_time_with_encoding(device.encoder, _encoded(work), step_s, temperature=temperature)


def encoder_energy(device: Device, work: OperatorWork) -> Float[Array, "*b"]:
    """Joules of encoding what a step writes, however long it takes; 0 without encoders. Arguments: `encoder_time`."""
    if device.encoder is None:
        return jnp.zeros_like(work.flops[..., 0])
    return encode_energy(device.encoder, _encoded(work))


def _encoded(work: OperatorWork) -> Float[Array, "*b"]:
    if work.encoded_kv is None:
        raise ValueError(
            "the work does not say which new keys and values are stored coded, which a device with an encoder needs; build it "
            "with step_operators"
        )
    return work.encoded_kv
