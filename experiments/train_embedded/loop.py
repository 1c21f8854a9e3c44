"""A training loop that stops and starts: progress, checkpoints, and a step's text that depends on the step alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Share of the newest step in the running mean that is shown.
_NEWEST = 0.02


def run_steps(
    directory: Path,
    params: Any,
    opt_state: Any,
    step_function: Callable[..., Any],
    batch_at: Callable[[int], Any],
    *,
    steps: int,
    checkpoint_every: int,
    scale: float,
    unit: str,
) -> dict[str, Any]:
    """Train from the newest checkpoint on, or from the beginning.

    Args:
        directory: of the checkpoints.
        step_function: (params, opt_state, batch) -> (params, opt_state, loss).
        batch_at: what a step learns from; a function of the step alone.
        steps: 0 restores and trains nothing.
        scale, unit: how the loss is shown.
    Returns:
        {"params", "opt_state", "step"} after the last step.
    """
    state = {"params": params, "opt_state": opt_state, "step": jnp.asarray(0)}
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(directory.absolute(), options=options) as manager:
        if manager.latest_step() is not None:
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
            state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract))
        first, started = int(state["step"]), time.monotonic()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, disable=first >= steps) as progress:
            task = progress.add_task("training", total=steps, completed=first)
            running = None
            for step in range(first, steps):
                params, opt_state, loss = step_function(state["params"], state["opt_state"], batch_at(step))
                state = {"params": params, "opt_state": opt_state, "step": jnp.asarray(step + 1)}
                shown = scale * float(loss)
                running = shown if running is None else (1 - _NEWEST) * running + _NEWEST * shown
                progress.update(task, completed=step + 1, description=f"training, {running:.3f} {unit}")
                if (step + 1) % checkpoint_every == 0 or step + 1 == steps:
                    manager.save(step + 1, args=ocp.args.StandardSave(state))
                    progress.console.print(
                        f"step {step + 1}: train {running:.3f} {unit}, {time.monotonic() - started:.0f} s"
                    )
        manager.wait_until_finished()
    return state
