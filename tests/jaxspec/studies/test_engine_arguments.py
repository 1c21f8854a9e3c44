"""Commands for engines name arguments that the engines take: those of pinned releases, read from their packages."""

import dataclasses
import itertools
import json
import re
import shlex
from pathlib import Path

from hwmodels.catalog import Parallelism
from jaxspec.studies.engine_flags import SERVED_DRAFTS, Range, ServedDraft, ServedTree, engines_for

TABLE = json.loads((Path(__file__).parents[2] / "golden" / "engine_arguments.json").read_text(encoding="utf-8"))
SCHEDULE = (Range(1, 7, 5), Range(8, 31, 2), Range(32, 64, 0))
PARALLEL = (Parallelism(), Parallelism(tensor=4, draft_tensor=1, pipeline=2), Parallelism(data=2, expert=2, tensor=2))


def engines():
    """Every engine's settings for all kinds of draft, in all ways that change them."""
    ways = itertools.product(SERVED_DRAFTS, ((), SCHEDULE), PARALLEL, (None, ServedTree(12, 4, 3)), (False, True))
    for kind, schedule, parallelism, tree, odd in ways:
        draft = ServedDraft(
            kind, "" if kind in ("ngram", "mtp") else "owner/draft", other_rows=odd and kind == "network"
        )
        asked = {"schedule": schedule, "parallelism": parallelism, "tree": tree, "float32": odd, "tokenizer": not odd}
        yield from ((kind, each) for each in engines_for("owner/target", draft, 3, **asked))


def flags_of(text: str, program: str) -> list[str]:
    """Long options of the commands that begin with a program's name."""
    commands = [line for line in text.replace("\\\n", " ").splitlines() if line.startswith(program)]
    return [word for command in commands for word in shlex.split(command) if word.startswith("--")]


def unknown(engine) -> list[str]:
    """What an engine's settings have that its table lacks."""
    table = TABLE[engine.title]
    if engine.title == "transformers":
        return [
            name
            for name in re.findall(r"generation_config\.(\w+)", engine.shown)
            if name not in table["generation_config"]
        ]
    programs = {"vLLM": "vllm serve", "SGLang": "python -m sglang.launch_server", "llama.cpp": "llama-server"}
    missing = [flag for flag in flags_of(engine.shown, programs[engine.title]) if flag not in table["flags"]]
    if engine.title == "vLLM":
        settings = json.loads(engine.content)
        missing += [key for key in settings if key not in table["speculative_config"]]
        method = settings["method"]
    else:
        words = shlex.split(engine.shown.replace("\\\n", " "))
        option = "--speculative-algorithm" if engine.title == "SGLang" else "--spec-type"
        method = words[words.index(option) + 1]
        if "--speculative-adaptive" in words and method not in table["adaptive_methods"]:
            missing.append(f"adaptive {method}")
    return missing + [method] * (method not in table["methods"])


def test_every_argument_of_a_command_exists_in_the_engine():
    written = list(engines())
    assert {each.title for _, each in written} == set(TABLE)
    for kind, each in written:
        if (kind, each.title) == ("medusa", "vLLM"):  # the pinned release has dropped them, which the command says
            assert unknown(each) == ["medusa"]
            assert each.versions.endswith("to 0.32")
        else:
            assert unknown(each) == [], (kind, each.shown)


def test_a_misspelt_argument_is_noticed():
    engine = next(each for kind, each in engines() if (kind, each.title) == ("eagle3", "SGLang"))
    wrong = dataclasses.replace(
        engine, shown=engine.shown.replace("eagle-topk", "eagle-top-k").replace("EAGLE3", "EAGLE4")
    )
    assert unknown(wrong) == ["--speculative-eagle-top-k", "EAGLE4"]
