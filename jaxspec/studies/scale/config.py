"""Settings of `jaxspec scale`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxspec.errors import InputError, hint
from jaxspec.settings.acceptance import ACCEPTANCE_UNUSED, AcceptanceSettings
from jaxspec.settings.base import Unused
from jaxspec.settings.catalog_names import catalog_architectures, named_networks
from jaxspec.settings.coercion import shown
from jaxspec.settings.common import CommonConfig, ParallelSettings
from jaxspec.settings.draft_kinds import SELF, check_draft_name, draft_help, draft_names, no_own_network
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.schemes import WidthScheme
from jaxspec.studies.study import Plot, Study, run_directory

#: Tasks whose answers can be checked.
Task = Literal["python", "arithmetic", "word-problems"]


#: Programs that look at Python, each stricter than the one before.
Check = Literal["parses", "compiles", "doctests"]


#: What says which sample is best where no program can.
Score = Literal["likelihood", "judge"]


#: Ways to one answer of several samples, with what each does.
METHODS = {
    "pass-at-n": "at least one of N samples is right, which the task's own checker tells",
    "best-of-n": "the sample with the highest score",
    "majority": "the answer that most samples give",
    "beam": "after each step, the branches with the highest scores grow on",
}


#: Judge of arithmetic unless another is named.
JUDGE = "embedded-judge"


#: Tokens of a sample unless a user says otherwise.
_TOKENS = {"python": 256, "arithmetic": 64, "word-problems": 64}


def _check_methods(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in METHODS:
            raise InputError(f"method {shown(name)} is unknown{hint(name, METHODS)}")


def _few_positions(numbers: tuple[float, ...]) -> None:
    if len(numbers) > MAX_DRAFT_LENGTH and len(numbers) > 1:
        raise InputError(f"acceptance has {len(numbers)} positions; allowed are 1 to {MAX_DRAFT_LENGTH}")


def _no_judge(config: ScaleConfig) -> str | None:
    return None if config.score == "judge" else f"score {config.score} asks no judge"


@dataclasses.dataclass(frozen=True)
class ScaleConfig(ParallelSettings, AcceptanceSettings, stated_beside=__file__):
    """`jaxspec scale`.

    Raises:
        InputError: a value out of its range; settings that do not fit together.
    """

    model: tuple[str, ...] = setting(("embedded",), names=named_networks)
    task: Task = setting("python")
    samples: tuple[int, ...] = setting((1, 2, 4, 8, 16))
    method: tuple[str, ...] | None = setting(
        None,
        help=f"Ways to make one answer from N samples, separated by commas: {', '.join(METHODS)}.",
        check=_check_methods,
    )
    score: Score = setting("likelihood")
    judge: str | None = setting(None)
    check: Check = setting("parses")
    unsafe_run_code: bool = setting(False)
    temperature: float = setting(0.8)
    top_k: int = same_as(CommonConfig, "top_k")
    top_p: float = same_as(CommonConfig, "top_p")
    prompts: int = setting(96)
    prompt_bytes: int = setting(256)
    output_tokens: int | None = setting(
        None, unset=", ".join(f"{tokens} for {task}" for task, tokens in _TOKENS.items())
    )
    text: str = same_as(CommonConfig, "text")
    architecture: tuple[str, ...] = setting(
        (CommonConfig.architecture,), names=lambda: ("own", *catalog_architectures()), objects="architecture"
    )
    device: tuple[str, ...] = same_as(CommonConfig, "device")
    engine: str | None = same_as(CommonConfig, "engine")
    weight_format: str | None = same_as(CommonConfig, "weight_format")
    batch: int = same_as(CommonConfig, "batch")
    batches: tuple[int, ...] = setting((1, 4, 16))
    context: int = same_as(CommonConfig, "context")
    scheme: WidthScheme = setting("bf16", objects="scheme")
    draft: str = setting("ngram", help=draft_help, check=check_draft_name, names=draft_names, objects="draft")
    acceptance: tuple[float, ...] | None = same_as(AcceptanceSettings, "acceptance", check=_few_positions)
    accuracy: float | None = setting(None)
    stream: bool | None = same_as(CommonConfig, "stream")
    mesh: str | None = same_as(CommonConfig, "mesh")
    seed: int = same_as(CommonConfig, "seed")

    unused = (
        Unused(("mesh",), lambda config: config.stream, "with stream, layers pass through one device"),
        Unused(("judge",), _no_judge),
        *ACCEPTANCE_UNUSED[:3],
        Unused(("draft_tensor_parallel",), lambda config: no_own_network(config.draft)),
        Unused(
            ("check", "prompt_bytes", "text"), lambda config: config.task != "python" and f"the task is {config.task}"
        ),
        Unused(("unsafe_run_code",), lambda config: not config.runs_code, "no code of samples runs"),
    )

    def __post_init__(self):
        super().__post_init__()
        if self.method is not None and "majority" in self.method and self.task == "python":
            raise InputError(
                "method majority came, and functions have no answers to count; leave it out, or give --task arithmetic"
            )
        if self.score == "judge" and self.judge is None and self.task != "arithmetic":
            raise InputError(
                f"score is 'judge', and a judge of arithmetic alone is shipped, none of {self.task}; name one with --judge, or "
                "leave score out"
            )
        if len(self.model) > 1 and len(self.architecture) == 1 and self.architecture != ("own",):
            raise InputError(
                f"{len(self.model)} models and one architecture came, with which all would cost the same; give one for each, "
                "or --architecture own"
            )
        if len(self.architecture) not in (1, len(self.model)):
            raise InputError(
                f"{len(self.architecture)} architectures came for {len(self.model)} models; give one, or one for each model"
            )
        if self.draft == SELF and self.acceptance_form is None:
            raise InputError(
                f"draft {SELF!r} is made on calibration text; give the acceptance that jaxspec evaluate measures with "
                "--acceptance, or another draft"
            )

    @property
    def methods(self) -> tuple[str, ...]:
        """Those asked for, or all that the task has."""
        return self.method or tuple(name for name in METHODS if name != "majority" or self.task != "python")

    @property
    def runs_code(self) -> bool:
        """Whether code of samples runs."""
        return self.task == "python" and self.check == "doctests"

    @property
    def most_tokens(self) -> int:
        """Of a sample."""
        return self.output_tokens or _TOKENS[self.task]

    @property
    def judging(self) -> str | None:
        """The judge that is asked, or None."""
        return (self.judge or JUDGE) if self.score == "judge" else None

    @property
    def priced(self) -> dict[str, str]:
        """Model -> architecture."""
        names = self.architecture if len(self.architecture) > 1 else self.architecture * len(self.model)
        return dict(zip(self.model, names, strict=True))


#: The study of test-time scaling.
SCALE = Study(
    name="scale",
    config=ScaleConfig,
    first=("task", "samples", "method"),
    figures="jaxspec.studies.scale.view:figures",
    announce=lambda config: (
        f"{', '.join(config.model)} on {config.task}, priced as {', '.join(config.architecture)} on {', '.join(config.device)}"
    ),
    out=run_directory("scale"),
    meshed=True,
    plot=Plot("Write a figure: accuracy against the cost of every plan.", "jaxspec.studies.scale.view:plot"),
)
