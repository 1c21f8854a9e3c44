"""What a configuration of `jaxspec scale` names: problems, networks, acceptance and devices, checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from types import SimpleNamespace
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int

from hwmodels import Architecture, Case
from jaxspec.compress.knobs import check_stored_dtype
from jaxspec.compress.schemes import find_scheme
from jaxspec.compress.weights import target_network
from jaxspec.errors import InputError
from jaxspec.models.architecture import architecture_of
from jaxspec.models.chat_template import ChatTemplate, load_chat_template
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import check_model, load_model, model_place
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.special_tokens import end_tokens
from jaxspec.models.stored import as_computed
from jaxspec.models.tokenizer import Tokenizer, load_tokenizer
from jaxspec.scaling.tasks.arithmetic import END, STEP_END, Problem, answer_of, problems
from jaxspec.scaling.tasks.python import function_of, function_prompts
from jaxspec.scaling.tasks.word_problems import TEXT_END, last_number, word_problems
from jaxspec.scaling.verifiers import compiles, doctests_hold, isolation, parses
from jaxspec.scaling.verifiers.judge import Judge
from jaxspec.settings.common import PARALLEL
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.drafts import ReadyDraft, check_draft, make_draft
from jaxspec.speculate.drafts.factory import is_searched
from jaxspec.studies.draft_widths import run_form
from jaxspec.studies.feasibility import TextLength
from jaxspec.studies.given_acceptance import GivenRates, given_rates
from jaxspec.studies.measured.checking import check_processes, given_mesh
from jaxspec.studies.measured.pricing import resolve_architecture, resolve_device, resolve_pricing
from jaxspec.studies.measured.run_context import load_target
from jaxspec.studies.release import with_kernels
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.text import TextSplit, check_text, load_text
from jaxspec.tuning.calibration import target_params

#: Stands for the answer of a sample that has none; all answers are 0 or more.
NO_ANSWER = -1


#: Bytes after which a step of a function or of an answer in words ends, for beams.
_LINE_END, _SENTENCE_END = b"\n", b".\n"


_CHECKS = {"parses": parses, "compiles": compiles}


@dataclasses.dataclass(frozen=True)
class PythonProblems:
    """Functions whose bodies are to be written; right where the whole function passes a check.

    Attributes:
        prompts: what the network is given.
        step_end: each byte ends a step of an answer.
        end: each byte ends an answer; empty where `answer_bytes` alone tells the end.
    """

    prompts: Sequence[bytes]
    check: Callable[..., np.ndarray]
    step_end: bytes = _LINE_END
    end: bytes = b""

    def answer_bytes(self, problem: int, completion: bytes) -> int | None:
        """Bytes of a completion up to where its end is seen; None where it has no end.

        The first byte behind the function belongs to it, since it shows the end.
        """
        prompt = self.prompts[problem]
        whole = function_of(prompt, completion)
        # The function is the head and a beginning of the completion; the byte behind that shows that it is over.
        return None if whole is None else len(whole) - _head_bytes(prompt) + 1

    def right(
        self, number: Sequence[int], completions: Sequence[Sequence[bytes]]
    ) -> Bool[np.ndarray, "problem sample"]:
        """Which completions are right, of the problems of these numbers; generated code runs isolated from this machine, if at
        all."""
        functions = [[function_of(self.prompts[i], text) for text in row] for i, row in zip(number, completions)]
        right = np.zeros((len(functions), max(map(len, functions), default=0)), bool)
        places = [(i, j) for i, row in enumerate(functions) for j, whole in enumerate(row) if whole is not None]
        if places:
            texts = [str(functions[i][j] or b"", "utf-8", "replace") for i, j in places]
            right[tuple(np.transpose(places))] = self.check(texts) > 0
        return right

    def answers(self, problem: int, completions: Sequence[bytes]) -> Int[np.ndarray, " sample"]:
        """Answers as numbers, `NO_ANSWER` where there is none: functions are not counted."""
        return np.full(len(completions), NO_ANSWER)

    def right_answer(self, problem: int) -> int:
        """The right answer as a number; `NO_ANSWER` where many are."""
        return NO_ANSWER


@dataclasses.dataclass(frozen=True)
class ArithmeticProblems:
    """Sums that are worked out in steps or in words; right where the answer's number is the value. Members are those of
    `PythonProblems`.

    Attributes:
        number: of a completion up to its end; None where it has none.
    """

    problems: Sequence[Problem]
    step_end: bytes = STEP_END
    end: bytes = END
    number: Callable[[bytes], int | None] = answer_of

    @property
    def prompts(self) -> Sequence[bytes]:
        """See `PythonProblems`."""
        return [problem.text for problem in self.problems]

    def answer_bytes(self, problem: int, completion: bytes) -> int | None:
        """See `PythonProblems`."""
        place = completion.find(self.end)
        return None if place < 0 else place + len(self.end)

    def right(
        self, number: Sequence[int], completions: Sequence[Sequence[bytes]]
    ) -> Bool[np.ndarray, "problem sample"]:
        """See `PythonProblems`."""
        rows = [self.answers(i, row) == self.right_answer(i) for i, row in zip(number, completions)]
        return np.stack(rows) if rows else np.zeros((0, 0), bool)

    def answers(self, problem: int, completions: Sequence[bytes]) -> Int[np.ndarray, " sample"]:
        """See `PythonProblems`."""
        answers = [self.number(completion[: self.answer_bytes(problem, completion)]) for completion in completions]
        return np.array([NO_ANSWER if value is None else value for value in answers])

    def right_answer(self, problem: int) -> int:
        """See `PythonProblems`."""
        return self.problems[problem].value


#: Problems of one task; completions are bytes, one list for each problem.
Problems: TypeAlias = PythonProblems | ArithmeticProblems


def _head_bytes(prompt: bytes) -> int:
    """Bytes of the function's head at the end of a prompt."""
    body = b" \n"
    whole = function_of(prompt, body + b"x")
    assert whole is not None
    return len(whole) - len(body)


def make_problems(config: ScaleConfig, text: TextSplit | None, tokenizer: Tokenizer | None) -> Problems:
    """The problems that a configuration names, the same for all networks.

    Args:
        text, tokenizer: where functions come from; None for sums.
    Raises:
        InputError: the text has fewer than two functions.
    """
    if config.task == "arithmetic":
        return ArithmeticProblems(problems(config.prompts, seed=config.seed))
    if config.task == "word-problems":
        asked = word_problems(config.prompts, seed=config.seed)
        return ArithmeticProblems(asked, step_end=_SENTENCE_END, end=TEXT_END, number=last_number)
    assert text is not None
    assert tokenizer is not None
    ends = (*text.held_out_starts[1:], len(text.held_out))
    documents = [tokenizer.decode(text.held_out[a:b]).encode() for a, b in zip(text.held_out_starts, ends)]
    # A head stands at the beginning of a line, also of a document's first one.
    functions = function_prompts(b"\0\n".join(documents), config.prompts, context=config.prompt_bytes, seed=config.seed)
    if len(functions) < 2:
        raise InputError(
            f"text {config.text!r} has {len(functions)} functions at the beginning of a line in its second half; give Python "
            "with two or more"
        )
    # Nothing of the document before; prompts of one length are compiled once.
    prompts = [prompt[prompt.rfind(b"\0") + 1 :].removeprefix(b"\n") for prompt in functions]
    cut = [prompt[-max(config.prompt_bytes, _head_bytes(prompt)) :] for prompt in prompts]
    return PythonProblems(cut, _CHECKS.get(config.check, partial(doctests_hold, unsafe=config.unsafe_run_code)))


#: Stands for the end of a text: a line that is part of no function before it.
_LAST_LINE = b"\n" + TEXT_END


#: Tokens of a vocabulary of bytes.
_BYTES = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A network that answers; its weights are read when they are first asked for.

    Attributes:
        scheme: of storage, which may change the network.
        end_tokens: its own, which end a text.
        template: writes each prompt as a user's message; None: prompts are texts to go on from.
        stream, mesh: where its weights lie (see `load_target`).
    """

    name: str
    config: DecoderConfig
    tokenizer: Tokenizer
    scheme: str
    end_tokens: tuple[int, ...] = ()
    template: ChatTemplate | None = None
    stream: bool = False
    mesh: tuple[int, int] | None = None
    _encoded: dict[bytes, np.ndarray] = dataclasses.field(default_factory=dict)  # by prompt

    @cached_property
    def loaded(self) -> LoadedModel:
        """The checkpoint, read once: drafts are made of it too."""
        return load_target(self.name, stream=self.stream, mesh=self.mesh, codes=self.config.in_codes).loaded

    @cached_property
    def params(self) -> Params:
        """Parameters to compute with."""
        stored = self.loaded.params
        return as_computed(target_network(find_scheme(self.scheme), stored) if self.changed else stored)

    @cached_property
    def drafts(self) -> dict[str, ReadyDraft]:
        """By name, those that were made of it."""
        return {}

    def drafted_by(self, draft: str, *, sharing: int = 1) -> ReadyDraft:
        """A draft, made once.

        Args:
            sharing: see `make_draft`.
        Raises:
            InputError: see `make_draft`.
        """
        if draft not in self.drafts:
            self.drafts[draft] = make_draft(draft, self.loaded, sharing=sharing)
        return self.drafts[draft]

    @property
    def changed(self) -> bool:
        """Whether the scheme makes another network of this one, and that one runs."""
        facts = SCHEME_FACTS[self.scheme]
        return facts.runs and not facts.lossless

    def encoded(self, prompt: bytes) -> Int[np.ndarray, " token"]:
        """A prompt as tokens; half a character at its beginning, as a cut leaves it, is dropped where tokens are not bytes."""
        if prompt not in self._encoded:
            text = prompt if self._of_bytes else prompt.decode(errors="ignore")
            if self.template is not None:
                asked = [{"role": "user", "content": prompt.decode()}]
                text = self.template.render(asked, begin_answer=True)
            # A template writes the special tokens itself.
            self._encoded[prompt] = self.tokenizer.encode(text, special_tokens=self.template is None)
        return self._encoded[prompt]

    def decoded(self, tokens: Int[np.ndarray, " token"]) -> bytes:
        """Bytes that tokens behind a prompt stand for; a token of the network's own that ends a text is `_LAST_LINE`."""
        over = len(tokens) > 0 and int(tokens[-1]) in self.end_tokens
        tokens = tokens[:-1] if over else tokens
        text = bytes(tokens.astype(np.uint8)) if self._of_bytes else self.tokenizer.continuation(tokens).encode()
        return text + _LAST_LINE if over else text

    def stop(self, problems: Problems) -> Int[np.ndarray, " stop"]:
        """Tokens that end a sample."""
        return np.union1d(self.tokens_with(problems.end), np.array(self.end_tokens)).astype(np.int32)

    @property
    def _of_bytes(self) -> bool:
        return self.tokenizer.of_bytes

    def spent(self, problems: Problems, problem: int, tokens: Int[np.ndarray, " token"]) -> int | None:
        """Tokens of a sample up to where its answer is seen to end; None where it has no end."""
        size = problems.answer_bytes(problem, self.decoded(tokens))
        if size is None:
            return None
        if self._of_bytes:
            return min(size, len(tokens))
        # The fewest tokens whose text has the end: more never lose it.
        low, high = 1, len(tokens)
        while low < high:
            middle = (low + high) // 2
            ended = problems.answer_bytes(problem, self.decoded(tokens[:middle])) is not None
            low, high = (low, middle) if ended else (middle + 1, high)
        return low

    def tokens_with(self, characters: bytes) -> Int[np.ndarray, " token"]:
        """All tokens in which one of some bytes stands."""
        if self._of_bytes or not characters:
            return np.array(sorted(characters), np.int32)
        wanted = set(characters.decode())
        return np.array(
            [i for i in range(self.config.vocab_size) if wanted & set(self.tokenizer.decode([i]))], np.int32
        )


def check_network(name: str, config: ScaleConfig) -> Network:
    """A network without its weights.

    Raises:
        InputError: it cannot be read, or is asked in words and has no chat template.
    """
    place, shape = model_place(name), check_model(name, codes=not SCHEME_FACTS[config.scheme].takes_bits)
    tokenizer = load_tokenizer(place, vocab_size=shape.vocab_size)
    template = None
    if config.task == "word-problems" and (template := load_chat_template(place)) is None:
        raise InputError(
            f"task 'word-problems' asks through a chat template, and model {name!r} has none; give a network that answers "
            "questions, or --task arithmetic"
        )
    return Network(name, shape, tokenizer, config.scheme, end_tokens(place, vocab_size=shape.vocab_size), template)


def check_length(network: Network, config: ScaleConfig, problems: Problems) -> tuple[str, ...]:
    """What a user should know of the longest prompt with its answer.

    Raises:
        InputError: the network, or its draft, has fewer positions.
    """
    longest = max(len(network.encoded(prompt)) for prompt in problems.prompts)
    length = TextLength(longest, config.most_tokens, "of an answer", "give a smaller --output-tokens or --prompt-bytes")
    length.check(network.name, network.config)
    of_draft = () if config.acceptance_form is not None else length.of_draft(config.draft)
    return (*length.beyond_training(network.name, network.config), *of_draft)


def check_judge(name: str) -> DecoderConfig:
    """Shape of a judge.

    Raises:
        InputError: it cannot be read, or its tokens are not bytes.
    """
    shape = check_model(name)
    if shape.vocab_size != _BYTES:
        raise InputError(
            f"judge {name!r} has {shape.vocab_size} tokens; a judge reads bytes, of which there are {_BYTES}"
        )
    if not load_tokenizer(model_place(name), vocab_size=_BYTES).of_bytes:
        raise InputError(
            f"judge {name!r} has a tokenizer.json whose tokens are not the bytes 0 to 255; a judge reads bytes: give one "
            "of these"
        )
    return shape


def load_judge(name: str, problems: Problems) -> Judge:
    """A judge, which says after each step and at the end whether all is right so far."""
    loaded = load_model(name)
    marks = tuple(sorted({*problems.step_end, *problems.end}))
    return Judge(as_computed(target_params(loaded.params, exact=loaded.exact)), loaded.config, marks)


@dataclasses.dataclass(frozen=True)
class Checked:
    """What a configuration names, apart from weights.

    Attributes:
        pricings: by device, then by model.
        judge: architecture that a judge is priced with; None: none is asked.
        text: None where problems do not come from a text.
        notes: what the user should know about them.
        rates: acceptance, where it was given.
    """

    networks: dict[str, Network]
    problems: Problems
    pricings: dict[str, dict[str, Case]]
    judge: Architecture | None
    text: TextSplit | None
    notes: tuple[str, ...]
    rates: GivenRates | None


def check_scale(config: ScaleConfig) -> Checked:
    """Read and check all that a configuration names, what costs least first.

    Raises:
        InputError: anything missing, malformed or too small.
    """
    known = {name: given for name, given in config.priced.items() if given != "own"}
    # Names are resolved before any file is opened, so that a misspelt device costs nothing.
    for name in known.values():
        resolve_architecture(name, None)
    for device in config.device:
        resolve_device(device, engine=config.engine, weight_format=config.weight_format)
    isolated_by = isolation(unsafe=config.unsafe_run_code) if config.runs_code else None
    check_processes(config)
    given_mesh(config)
    rates = given_rates(config, longest=MAX_DRAFT_LENGTH)
    text = tokenizer = None
    if config.task == "python":
        check_text(config.text, (1, 1))
    facts = SCHEME_FACTS[config.scheme]
    shapes = {name: check_model(name, codes=not facts.takes_bits) for name in config.model}
    tokens: tuple[str, ...] = ()
    for name, shape in shapes.items():
        if facts.runs:
            check_stored_dtype(find_scheme(config.scheme), shape)
        if config.draft != SELF:
            tokens += check_draft(config.draft, shape, name)
            if is_searched(config.draft):
                raise InputError(
                    f"draft {config.draft!r} is searched on calibration text, of which problems have none; give another draft"
                )
    judge = None if config.judging is None else check_judge(config.judging)
    first = config.model[0]
    if config.task == "python":
        tokenizer = load_tokenizer(model_place(first), vocab_size=shapes[first].vocab_size)
        text = load_text(config.text, tokenizer, needed=(1, 1), chat=load_chat_template(model_place(first)))
    problems = make_problems(config, text, tokenizer)
    networks = {name: check_network(name, config) for name in config.model}
    # The network that a draft is made for is printed once.
    lengths = dict.fromkeys(note for network in networks.values() for note in check_length(network, config, problems))
    forms = {name: run_form(name, codes=shape.in_codes) for name, shape in shapes.items()}
    pricings = {
        device: {
            name: resolve_pricing(_priced(with_kernels(config, device, forms[name]), given), device, shapes[name])
            for name, given in config.priced.items()
        }
        for device in config.device
    }
    return Checked(
        networks=networks,
        problems=problems,
        pricings=pricings,
        judge=None if judge is None else _judge_architecture(config, architecture_of(judge)),
        text=text,
        notes=(
            *(rates.notes if rates is not None else ()),
            *(text.notes if text is not None else ()),
            *_notes(config, networks, problems, isolated_by),
            *tokens,
            *lengths,
        ),
        rates=rates,
    )


def _priced(config: ScaleConfig, architecture: str) -> SimpleNamespace:
    """The settings for `resolve_pricing`; a prompt, which samples share, is all the context."""
    own = {name: getattr(config, name) for name in ("engine", "weight_format", "batch", "context", *PARALLEL)}
    return SimpleNamespace(architecture=architecture, prompt_tokens=config.context, **own)


def _judge_architecture(config: ScaleConfig, own: Architecture) -> Architecture:
    """A judge's own shapes where networks are priced with theirs, else those of the first network: a judge is as large."""
    name = next(iter(config.priced.values()))
    return own if name == "own" else resolve_architecture(name, None)


def _notes(config: ScaleConfig, networks: dict[str, Network], problems: Problems, isolated_by: str | None) -> list[str]:
    notes = []
    if len(problems.prompts) < config.prompts:
        notes.append(f"the text has {len(problems.prompts)} functions, of which all are problems")
    facts = SCHEME_FACTS[config.scheme]
    if any(network.changed for network in networks.values()):
        notes.append(f"the network that answers is the one that {config.scheme} makes of the checkpoint")
    elif not facts.lossless:
        notes.append(
            f"{config.scheme} changes the network and cannot run here: accuracy is that of the uncompressed one"
        )
    if isolated_by is not None:
        notes.append("few functions have doctests; one without is not right")
        notes.append(f"{isolated_by} isolates the code of samples")
    return notes
