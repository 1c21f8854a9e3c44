"""Which arguments the engines take: `python tests/golden/make_engine_arguments.py DATE FILE...` writes `engine_arguments.json`.

FILEs are distributions from the package registry, which are read and not installed: the wheels of vLLM, SGLang and transformers
and the source package of llama-cpp-python, which holds llama.cpp. DATE says when they were fetched.
"""

import ast
import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

TABLE = Path(__file__).with_name("engine_arguments.json")


def annotated(source: str, *classes: str) -> list[str]:
    """Annotated fields of classes; of all, where none is named."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    bodies = [node.body for node in nodes if not classes or node.name in classes]
    return [line.target.id for body in bodies for line in body if isinstance(line, ast.AnnAssign)]


def flags_in(source: str) -> list[str]:
    """Words in quotes that look like long options."""
    return re.findall(r'"(--[a-z][a-z0-9-]*)"', source)


def literal(source: str, name: str, known: dict[str, list[str]]) -> list[str]:
    """Members of a `Literal`, with those of others that it names."""
    (node,) = (n.value for n in ast.parse(source).body if isinstance(n, ast.Assign) and n.targets[0].id == name)
    members = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [m for part in members for m in (known[part.id] if isinstance(part, ast.Name) else [part.value])]


def vllm(read) -> dict[str, list[str]]:
    config, known = read("vllm/config/speculative.py"), {}
    for name in re.findall(r"^(\w+) = Literal\[", config, flags=re.MULTILINE):
        known[name] = literal(config, name, known)
    return {
        "flags": flags_in(read("vllm/engine/arg_utils.py")),
        "speculative_config": annotated(config, "SpeculativeConfig"),
        "methods": known["SpeculativeMethod"],
    }


def sglang(read) -> dict[str, list[str]]:
    groups = [read(f"sglang/srt/arg_groups/fields/{name}.py") for name in ("model", "parallel", "serving", "spec")]
    names = [f"--{field.replace('_', '-')}" for group in groups for field in annotated(group)]
    algorithms = re.search(r"Builtins: ([A-Z0-9, ]+)\.", groups[-1])
    return {
        "flags": [*names, *(flag for group in groups for flag in flags_in(group))],
        "methods": algorithms[1].split(", ") if algorithms else [],
        "adaptive_methods": re.findall(
            r"algorithm not in \(([^)]*)\)", read("sglang/srt/speculative/adaptive_spec_params.py")
        )[0]
        .replace('"', "")
        .split(", "),
    }


def llama_cpp(read) -> dict[str, list[str]]:
    source, common = read("vendor/llama.cpp/common/arg.cpp"), read("vendor/llama.cpp/common/speculative.cpp")
    return {"flags": flags_in(source), "methods": re.findall(r'\{"([a-z0-9-]+)",\s*COMMON_SPECULATIVE_TYPE', common)}


def transformers(read) -> dict[str, list[str]]:
    source = read("transformers/generation/configuration_utils.py")
    return {"generation_config": sorted(set(re.findall(r"self\.(\w+)(?:: [^=\n]+)? = ", source)))}


READERS = {
    "vllm": ("vLLM", vllm),
    "sglang": ("SGLang", sglang),
    "llama_cpp_python": ("llama.cpp", llama_cpp),
    "transformers": ("transformers", transformers),
}


def reader_of(path: Path):
    """A function from a path within a distribution to its text."""
    if path.suffix == ".whl":
        wheel = zipfile.ZipFile(path)
        return lambda name: wheel.read(name).decode()
    package = tarfile.open(path)  # noqa: SIM115 - the function below reads it
    top = package.getnames()[0].split("/")[0]
    return lambda name: package.extractfile(f"{top}/{name}").read().decode()


def main(date: str, *files: str) -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
    for path in map(Path, files):
        name, version = re.fullmatch(r"(\w+)-([0-9.]+?)(?:-.*\.whl|\.tar\.gz)", path.name).groups()
        title, read = READERS[name]
        kinds = {kind: sorted(set(names)) for kind, names in read(reader_of(path)).items()}
        table[title] = {"distribution": f"{name} {version}", "read": date} | kinds
    lines = [f" {json.dumps(title)}: {json.dumps(table[title])}" for title in sorted(table)]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
