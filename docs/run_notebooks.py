"""Executes the notebooks of `docs/notebooks` and writes them back with their outputs, without a trace of this run.

    python docs/run_notebooks.py                 # all of them, in place: before a commit that changes a notebook
    python docs/run_notebooks.py huffllm         # one
    python docs/run_notebooks.py --check         # execute nothing; say what is wrong with the outputs as committed

Needs the `notebooks` or the `test` extra. Cells run in an empty folder that is removed afterwards.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"

#: A site that shows notebooks loads the whole file.
MAX_BYTES = 400_000

#: Where a notebook keeps the hash of the source that its outputs came from.
HASH_KEY = "executed_source_sha256"

#: Of one cell: what hangs ends, what is slow beside other work does not.
_CELL_SECONDS = 900

#: Calls that draw: functions named `..._figure` of the library, and pyplot.
_DRAWS = re.compile(r"\b(?:\w+_figure\(|plt\.show\()")

_FIGURE_AS_TEXT = re.compile(r"<Figure size|matplotlib\.figure\.Figure")

#: A path from the root of a file system or a home, and a user's name in one; URLs and fractions are none.
_ABSOLUTE_PATH = re.compile(r"(?<![\w/:.<)])(?:/(?:home|root|tmp|var|usr|opt|mnt|work|private|Users)/|~/|[A-Z]:\\)")


def source_hash(notebook: NotebookNode) -> str:
    """SHA-256 of the code cells' sources, in their order."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def plain_png(image: bytes) -> bytes:
    """The same picture in at most 256 colours, a third as large, and without the notes on which program wrote it."""
    stream = io.BytesIO()
    with Image.open(io.BytesIO(image)) as picture:
        palette = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    palette.save(stream, format="png", optimize=True)
    return stream.getvalue()


def _strip_output(output: NotebookNode) -> NotebookNode:
    output.pop("metadata", None)
    if output.output_type in ("display_data", "execute_result"):
        output["metadata"] = {}
        data = output.data
        if "image/png" in data:
            picture = base64.b64encode(plain_png(base64.b64decode(data["image/png"])))
            output.data = NotebookNode({"image/png": picture.decode()})  # its text is only `<Figure size ...>`
    return output


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Neighbouring pieces of standard output as one: where they were cut depends on the run."""
    joined: list[NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream" and output.name == joined[-1].name:
            joined[-1]["text"] += output.text
        else:
            joined.append(output)
    return joined


def strip(notebook: NotebookNode) -> NotebookNode:
    """The notebook without times, counts, versions and messages on standard error; with the hash of its source."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
        if cell.cell_type == "code":
            cell["execution_count"] = None
            shown = [o for o in cell.outputs if not (o.output_type == "stream" and o.name == "stderr")]
            cell["outputs"] = [_strip_output(output) for output in _joined(shown)]
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output["execution_count"] = None
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "jaxspec": {HASH_KEY: source_hash(notebook)},
    }
    return notebook


def execute(path: Path) -> NotebookNode:
    """The notebook with fresh outputs, stripped.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=_CELL_SECONDS, resources=resources, kernel_name="python3").execute()
    return strip(notebook)


def _texts(cell: NotebookNode) -> list[str]:
    texts = []
    for output in cell.outputs:
        texts.append(output.get("text", ""))
        texts += [str(value) for kind, value in output.get("data", {}).items() if not kind.startswith("image/")]
    return texts


def problems(notebook: NotebookNode) -> list[str]:
    """What must not be in a committed notebook, one line each."""
    lines = []
    if notebook.metadata.get("jaxspec", {}).get(HASH_KEY) != source_hash(notebook):
        lines.append("the outputs are not those of this source")
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        text = "\n".join(_texts(cell))
        if any(output.output_type == "error" for output in cell.outputs):
            lines.append(f"cell {number} ended in an error")
        if _DRAWS.search(cell.source) and not kinds & {"image/png", "image/svg+xml"}:
            lines.append(f"cell {number} draws, and shows no picture")
        if _FIGURE_AS_TEXT.search(text):
            lines.append(f"cell {number} shows a figure as text")
        if path := _ABSOLUTE_PATH.search(text):
            lines.append(f"cell {number} shows an absolute path ({text[path.start() : path.start() + 40]!r})")
        if cell.metadata or cell.execution_count is not None:
            lines.append(f"cell {number} keeps metadata of its run")
        if any(output.output_type == "stream" and output.name == "stderr" for output in cell.outputs):
            lines.append(f"cell {number} shows messages on standard error")
    if (size := len(nbformat.writes(notebook).encode())) > MAX_BYTES:
        lines.append(f"{size} bytes; allowed are {MAX_BYTES}")
    return lines


def main() -> int:
    """Execute and write, or check; 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python docs/run_notebooks.py", description=__doc__)
    parser.add_argument("names", nargs="*", help="stems of notebooks; all unless given")
    parser.add_argument("--check", action="store_true", help="execute nothing, check the committed outputs")
    parser.add_argument("--out", type=Path, default=NOTEBOOKS, help="where to write; in place unless given")
    arguments = parser.parse_args()
    known = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no such notebook: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    failed = False
    for name in arguments.names or known:
        notebook = nbformat.read(known[name], as_version=4) if arguments.check else execute(known[name])
        for problem in (faults := problems(notebook)):
            print(f"{name}.ipynb: {problem}", file=sys.stderr)
        failed = failed or bool(faults)
        if not arguments.check:
            nbformat.write(notebook, arguments.out / f"{name}.ipynb")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
