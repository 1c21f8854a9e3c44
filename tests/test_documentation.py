"""README, guide and notebooks as a whole. The code blocks themselves are tests of their own (`conftest.py` at the root)."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys

import code_blocks
import jax
import mathematics_hook
import nbformat
import page_commands
import page_python
import pytest
import run_notebooks
import stand_ins
from generated.commands import all_commands
from own_address import own_address

from jaxspec.cli import main
from jaxspec.cli.app import cli

PAGES = {
    path.relative_to(code_blocks.ROOT).as_posix(): path.read_text(encoding="utf-8") for path in code_blocks.pages()
}
FENCE = re.compile(r"^[ ]*```(.*)$", re.MULTILINE)
BLOCK = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
FORMULA = re.compile(r"\$([^$\n]+)\$")

#: Markers in the pages' sources, each with the reason. New ones are a decision, not a convenience.
PREPARED = {
    "docs/pages/containers.md": "the container that the page has packed on the command line",
    "docs/pages/extending.md": "members that the page has registered, which go again",
    "docs/pages/hardware.md": "a finished sweep to read",
    "docs/pages/sweep-on-a-cluster.md": "engines that are not installed, which call at once",
}

NOTEBOOKS = sorted(run_notebooks.NOTEBOOKS.glob("*.ipynb"))


def prose(text):
    return BLOCK.sub("", text)


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_are_checked(page):
    openings = FENCE.findall(PAGES[page])[::2]
    assert set(openings) <= {"python", *code_blocks.CHECKS}, "each block has a language that the tests know"
    assert ("<!---" in PAGES[page]) == (page in PREPARED)
    assert "skip" not in re.findall(r"<!--+\s*(\w+)", PAGES[page])


@pytest.mark.parametrize("page", PAGES)
def test_commands_within_sentences_are_taken(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in INLINE.findall(prose(PAGES[page])):
        match code.split():
            case ["jaxspec", command]:  # its name
                assert cli.get_command(None, command), code
            case ["python", "-m", program] if program.startswith("experiments."):  # its name too
                assert importlib.util.find_spec(program), code
            case ["jaxspec", _, *_] | ["python", "-m", *_]:
                code_blocks.check_bash(" ".join(code.split()))


HELP = {"": cli, **all_commands()}
#: A command of help in a line of its own, before what the line says of it.
SHOWN_COMMAND = re.compile(r"^ *((?:srun )?jaxspec (?:(?!  ).)+)", re.MULTILINE)


@pytest.mark.parametrize("name", [name for name, command in HELP.items() if SHOWN_COMMAND.search(command.help)])
def test_commands_of_help_are_taken(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code_blocks.check_bash("jaxspec sweep --example > sweep.toml")  # which `sweep merge` takes for granted
    for line in SHOWN_COMMAND.findall(HELP[name].help):
        code_blocks.check_bash(line.removesuffix(" ..."))


def known_flags():
    commands = [cli, *(cli.get_command(None, name) for name in cli.list_commands(None))]
    parameters = [parameter for command in commands for parameter in command.params]
    return {flag for parameter in parameters for flag in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help",
        "--help-all",
    }


#: Options of other programs that sentences mention, and their programs.
OTHER_FLAGS = {
    "--gpu": "python -m experiments.silicon",
    "--write": "python -m experiments.silicon.composed",
    "--strict": "mkdocs",
    "--speculative-config": "vllm serve",
    "--per-request-spec-decode-metrics": "vllm serve",
    "--speculative-algorithm": "sglang.launch_server",
    "--speculative-num-steps": "sglang.launch_server",
    "--speculative-num-draft-tokens": "sglang.launch_server",
    "--spec-type": "llama-server",
    "--spec-draft-n-max": "llama-server",
    "--spec-ngram-simple-size-m": "llama-server",
    "--draft-model": "mlx_lm.server",
    "--num-draft-tokens": "mlx_lm.server",
    "--array": "sbatch",
    "--kill-on-bad-exit": "srun",
    "--xla": "XLA",
    "--fit": "python -m experiments.field",
}


@pytest.mark.parametrize("page", PAGES)
def test_flags_within_sentences_exist(page):
    whole_commands = ("python", "mkdocs", "pip")  # parsed as they are, or not ours
    codes = [code for code in INLINE.findall(prose(PAGES[page])) if not code.startswith(whole_commands)]
    named = {flag for code in codes for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", code)}
    assert named <= known_flags() | set(OTHER_FLAGS)


@pytest.mark.parametrize("page", PAGES)
def test_formulas_are_typeset(page):
    for language, source in BLOCK.findall(PAGES[page]):
        if language == "math":
            assert mathematics_hook.mathml(source, display=True).startswith("<math")
    for source in FORMULA.findall(INLINE.sub("", prose(PAGES[page]))):
        assert mathematics_hook.mathml(source, display=False).startswith("<math")


@pytest.mark.parametrize(
    "command",
    [
        "jaxspec tune --devcie rtx-4090",
        "jaxspec tune --device rtx-4091",
        "jaxspec evaluate --weight-prune 2",
        "jaxspec tree --draft nothing",
        "jaxspec predict --architecture lama",
        "jaxspec pack --scheme zip",
        "jaxspec fly",
        "python -m experiments.reproduce cassandra --nonsense",
        "python -m experiments.reproduce nothing",
        "pip install -e '.[nonsense]'",
        "pytest -m nonsense",
        "nonsense --really",
    ],
)
def test_a_wrong_command_is_found(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        code_blocks.check_bash(command)


def test_a_comment_that_says_something_else_is_found():
    page_python.run_python("print(1 / 3, [1, 2])  # 0.33333 [1 2]: a third", {})
    page_python.run_python("for i in (1, 2):\n    print(i)  # 1, 2", {})
    with pytest.raises(AssertionError, match="its comment says"):
        page_python.run_python("print(1 / 3)  # 0.34", {})
    with pytest.raises(AssertionError, match="its comment says"):
        page_python.run_python("print('yes')  # no", {})
    with pytest.raises(AssertionError, match="its comment says"):
        page_python.run_python("for i in (1, 2):\n    print(\n        i / 3,\n    )  # 0.33333, 0.5", {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_outputs(path):
    assert run_notebooks.problems(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_imports_is_there(path):
    """Executing them takes minutes; names that moved show at once."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    lines = [line for cell in cells for line in cell.splitlines() if line.startswith(("from ", "import "))]
    assert lines
    exec("\n".join(lines), {})


def executes(path):
    """A class of its own for each notebook, so that they may run side by side."""

    def test_executes(self, tmp_path):
        command = [sys.executable, run_notebooks.__file__, "--out", str(tmp_path), path.stem]
        # It computes longer than it compiles, which the flags of tests are made for.
        own = {name: value for name, value in os.environ.items() if path.stem != "mobile_npu" or name != "XLA_FLAGS"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=own)
        assert done.returncode == 0, done.stderr[-3000:]
        fresh, kept = (nbformat.read(p, as_version=4) for p in (tmp_path / path.name, path))
        kinds = lambda notebook: [
            sorted({kind for o in cell.get("outputs", []) for kind in o.get("data", {"text": ""})})
            for cell in notebook.cells
        ]
        assert kinds(fresh) == kinds(kept)

    marks = [pytest.mark.notebooks] * (path.stem != "first_plot")
    return type(f"Test_{path.stem}", (), {"test_executes": test_executes, "pytestmark": marks})


for _path in NOTEBOOKS:
    globals()[f"Test_{_path.stem}"] = executes(_path)


#: Those that run a network: other tests have every option of those that only price.
RUNS = ("tune", "evaluate", "tree", "pack")
SMALL = ["--prompt-tokens", "32", "--output-tokens", "8", "--calibration-prompts", "4"]


def few_prompts(words):
    """Two, or a batch where batches are timed; none beside those of a file."""
    if "--prompts" in words:
        return SMALL[2:]
    timed = "--stopwatch" in words and "--batch" in words
    return [*SMALL, "--prompts", words[words.index("--batch") + 1] if timed else "2"]


def documented_runs():
    """Commands of the pages, those with most options first, each with an option that none before it has."""
    calls = [
        words
        for text in PAGES.values()
        for language, block in BLOCK.findall(text)
        if language == "bash"
        for words, _ in page_commands.split_commands("\n".join(line.removeprefix("$ ") for line in block.splitlines()))
        if words[0] == "jaxspec" and words[1] in RUNS
    ]
    found, shown = [], set()
    # Tuning takes longest: what another command shows as well is run there.
    for words in sorted(calls, key=lambda words: (-sum(word[:1] == "-" for word in words), words[1] == "tune")):
        if {"--knobs", "--example"} & set(words):
            continue
        options = {word for word in words if word[:1] == "-"} | {words[1]}
        if not options <= shown:
            found.append(words)
            shown |= options - {"--process-id"}
    return found


def together(runs):
    """Commands that are started together: those that name one coordinator; others by themselves."""
    found = {}
    for words in runs:
        place = words.index("--process-id") if "--process-id" in words else len(words)
        found.setdefault((*words[:place], *words[place + 2 :]), []).append(words)
    return list(found.values())


def runs(subcommand):
    """A class of its own for each subcommand, as for notebooks."""
    chosen = [commands for commands in together(documented_runs()) if commands[0][1] == subcommand]

    @pytest.mark.parametrize("commands", chosen, ids=lambda commands: shlex.join(commands[0]))
    def test_documented_commands_run(self, commands, tmp_path, monkeypatch, capfd):
        """For real, with few prompts and steps; those of several processes as processes on this machine."""
        monkeypatch.chdir(tmp_path)
        for name, make in stand_ins.stand_ins().items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            make(tmp_path / name)
        if subcommand == "pack":
            (tmp_path / "model.jspk").unlink()  # which it writes, and other commands read
        extra = [] if subcommand == "pack" else few_prompts(commands[0])
        extra += ["--steps", "2", "--uniform-steps", "1"] if subcommand == "tune" else []
        if "--coordinator" not in commands[0]:
            assert [run_here([*words[1:], *extra]) for words in commands] == [0], capfd.readouterr().err[-2000:]
            return
        here, started = own_address(), []
        for words in commands:
            at = words.index("--coordinator") + 1
            words = [here if place == at else word for place, word in enumerate(words)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen([sys.executable, "-m", *words, *extra], **pipes))
        for process in started:
            _, error = process.communicate(timeout=900)
            assert process.returncode == 0, error[-2000:]

    marks = [pytest.mark.study]
    return type(
        f"Test_{subcommand}",
        (),
        {test_documented_commands_run.__name__: test_documented_commands_run, "pytestmark": marks},
    )


def run_here(words):
    """The exit code of a command, which shares compiled programs with those before it; users run without strict promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code or 0


for _subcommand in RUNS:
    globals()[f"Test_{_subcommand}"] = runs(_subcommand)
