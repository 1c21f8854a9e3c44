"""A step's work with the padding of superblocks, on a device that stores compressed tensors in them.

Each tensor has streams of three types: bitmap, exponents, mantissas. A superblock holds speculation data or verification data,
never both: a draft would read everything otherwise, and save nothing. Where a block is skipped, because the decoder has enough
of its type, it stands later in memory and leaves no gap (record 0069), so that skipping costs no traffic.

Source: Cassandra, V-C.
Departs: verification data, which have types of their own, are padded together with the speculation data of their tensor.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from hwmodels.device import Device
from hwmodels.memory.superblocks import superblock_traffic
from hwmodels.network.operators.work import OPERATORS, OperatorWork
from hwmodels.numerics.scalars import with_last_axis

__all__ = ["STREAMS", "padded_work"]

#: Types of data of a tensor.
STREAMS = ("bitmap", "exponents", "mantissas")

_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])


def padded_work(device: Device, work: OperatorWork) -> OperatorWork:
    """The work with what is read to fill blocks and superblocks, in weights and in the cache; as it is without superblocks.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: superblocks, and work that does not say how many tensors are coded.
    Gradient: right by every leaf; counts are real numbers.
    """
    if device.superblocks is None:
        return work
    if work.coded_tensors is None:
        raise ValueError(
            "the work does not say how many tensors are coded, which a device with superblocks needs; build it with "
            "step_operators"
        )
    blocks = with_last_axis(device.superblocks)
    # Of streams without bytes the padding alone is moved, without a difference of large numbers.
    padding = superblock_traffic(
        jnp.zeros((*work.coded_tensors.shape, len(STREAMS)), work.coded_tensors.dtype),
        blocks_per_superblock=blocks.blocks_per_superblock,
        block_bytes=blocks.block_bytes,
        num_tensors=work.coded_tensors,
    ).moved_bytes
    of_cache = padding * _IS_ATTENTION.astype(padding.dtype)
    return dataclasses.replace(
        work, weight_bytes=work.weight_bytes + (padding - of_cache), kv_bytes=work.kv_bytes + of_cache
    )
