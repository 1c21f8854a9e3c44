"""Child process: one of two that share a mesh of two devices; process 0 prints what they told each other as JSON."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.errors import CollectiveInputError, InputError, ReportedByRank0Error
from jaxspec.models import load_directory
from jaxspec.models.mesh import make_mesh, on_host, on_mesh, split_rows
from jaxspec.runs.processes import start_processes
from jaxspec.tuning import target_params


def said_of(work, processes):
    """How bad input of a process ends on this one."""
    try:
        return processes.all_or_raise(work)
    except (ReportedByRank0Error, CollectiveInputError) as error:
        return type(error).__name__, str(error)


def main(where, index, directory):
    """What the two tell each other, and a network that neither of them has whole."""
    processes = start_processes(where, 2, index)

    def raising(*bad):
        def work():
            if index in bad:
                raise InputError(f"bad in {index}")
            return index

        return work

    found = {
        "broadcast": processes.broadcast({"from": index, "array": np.arange(3) + index}["array"]).tolist(),
        "gathered": processes.all_gather("x" * (index + 1) * 1000),
        "good": processes.all_gather(said_of(raising(), processes)),
        "first": processes.all_gather(said_of(raising(0, 1), processes)),
        "second": processes.all_gather(said_of(raising(1), processes)),
        "alike": processes.all_gather(said_of(lambda: processes.check_alike({"seed": index, "x": 1}), processes)),
    }
    loaded = load_directory(directory, stream="all")
    params = on_mesh(target_params(loaded.params), loaded.config, make_mesh(1, 2))
    query = params["layers"]["q"].array
    whole = target_params(load_directory(directory).params)["layers"]["q"].array
    (rows,) = split_rows(
        on_mesh(target_params(loaded.params), loaded.config, make_mesh(2, 1)), jnp.arange(8.0).reshape(4, 2)
    )
    found |= {
        "mesh": list(query.sharding.mesh.devices.shape),
        "part": [query.addressable_shards[0].data.shape, query.shape],
        "same": bool(np.array_equal(on_host(query), whole)),
        "rows": [rows.addressable_shards[0].data.shape, np.asarray(on_host(jax.jit(lambda x: 2 * x)(rows))).tolist()],
    }
    processes.finish()
    if processes.owns:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
