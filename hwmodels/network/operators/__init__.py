"""What one step of a decoder executes: FLOPs, bytes and matrix shapes per operator, whichever step it is.

Prefill, decoding, drafting, verification of chains and of trees are one function at different numbers of new tokens and
read widths. Modelling choices, all about what is moved off chip, stand in the modules: `weights`, `attention`, `activations`.
"""

from hwmodels.network.operators.expert_sharing import ExpertSharing, busiest_experts, busiest_load, touched_experts
from hwmodels.network.operators.step import StepShape, step_operators
from hwmodels.network.operators.steps import (
    decode_operators,
    decode_step,
    draft_step,
    prefill_step,
    stack_steps,
    verify_step,
)
from hwmodels.network.operators.work import (
    EXPERT_OPERATORS,
    MATRIX_OPERATORS,
    OPERATORS,
    MatrixShapes,
    OperatorWork,
    StoredBytes,
)

__all__ = [
    "EXPERT_OPERATORS",
    "MATRIX_OPERATORS",
    "OPERATORS",
    "ExpertSharing",
    "MatrixShapes",
    "OperatorWork",
    "StepShape",
    "StoredBytes",
    "busiest_experts",
    "busiest_load",
    "decode_operators",
    "decode_step",
    "draft_step",
    "prefill_step",
    "stack_steps",
    "step_operators",
    "touched_experts",
    "verify_step",
]
