"""The tree as a whole: who may import whom, and that every public name is explained.

All checks read the sources, so that a wrapped function or a dataclass cannot show a docstring that nobody wrote.
"""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

from jaxspec.studies.study import STUDIES, find_study

ROOT = Path(__file__).parents[1]
LIBRARIES = ("hwmodels", "jaxspec")

#: Rooms of jaxspec that may use the hardware models: the objective and what lies above it.
USERS_OF_HARDWARE = {"tuning", "report", "cli", "studies", "host", "api", "registries", "testing"}

#: Names that `hwmodels` offers itself: what a user's script needs. Others are imported from their room.
MOST_AT_THE_TOP = 80

#: Arithmetic, which has nothing of hardware in it: every room may use it.
ARITHMETIC = {
    "hwmodels.numerics.compensated_sums.EXACT",
    "hwmodels.numerics.compensated_sums.exact_matmul",
    "hwmodels.numerics.fast_compile.run_on_host",
}

#: Where networks and hardware meet below that, room by room: the footprint, which storage schemes and released files make and
#: the cost model reads; the description of a network, the table of families that it is read by, and its shapes; what a draft
#: costs.
ALLOWED_NAMES = {
    "compress": {
        "hwmodels.ALL_LAYER_MATRICES",
        "hwmodels.Footprint",
        "hwmodels.uniform_weight_bits",
        "hwmodels.numerics.scalars.Number",
    },
    "models": {
        "hwmodels.Architecture",
        "hwmodels.uniform_weight_bits",
        *(
            f"hwmodels.networks.{name}"
            for name in (
                *(
                    "ExpertSizes",
                    "LatentSizes",
                    "LearnedPositions",
                    "LinearSizes",
                    "NetworkSpec",
                    "RopeSpec",
                    "SharedSizes",
                ),
                *("FAMILIES", "Family", "Running", "Wrapper", "read_running", "runnable_families", "running_row"),
                *("packing.Packing", "settings.Settings", "written_config"),
                *("families.family_called", "heads.DraftHead", "heads.draft_head"),
            )
        ),
    },
    "speculate.drafts": {
        "hwmodels.network.architecture.Architecture",
        "hwmodels.network.architecture.LAYER_COUNTS",
        "hwmodels.numerics.scalars.as_float",
        "hwmodels.speculation.draft_cost.DraftCost",
        "hwmodels.speculation.draft_cost.medusa_head",
    },
}


def sources(root: Path, *tops: str) -> list[Path]:
    return sorted(path for top in tops for path in (root / top).rglob("*.py"))


def module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_of(root: Path, module: str) -> Path | None:
    folder = root.joinpath(*module.split("."))
    return next((p for p in (folder / "__init__.py", folder.with_suffix(".py")) if p.is_file()), None)


def origin(module: str, is_package: bool, node: ast.ImportFrom) -> str:
    """The absolute name of what `from X import ...` reads."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(root: Path, path: Path) -> set[str]:
    """Everything a file imports, wherever in it, by absolute name; names taken from a module count as its parts."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = origin(module_name(root, path), path.name == "__init__.py", node)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def forbidden_imports(root: Path) -> list[str]:
    found = []
    for path in sources(root, *LIBRARIES):
        top, *rooms = module_name(root, path).split(".")
        forbidden = {"experiments"}
        if top == "hwmodels":
            forbidden |= {"jaxspec"}
        elif not rooms or rooms[0] not in USERS_OF_HARDWARE:
            forbidden |= {"hwmodels"}
        names = imported(root, path)
        places = {"": ARITHMETIC} | {f"{place}.": allowed for place, allowed in ALLOWED_NAMES.items()}
        for place, allowed in places.items():
            if top == "jaxspec" and f"{'.'.join(rooms)}.".startswith(place):
                names -= allowed | {name.rpartition(".")[0] for name in names & allowed}
        wrong = {name.split(".")[0] for name in names} & forbidden
        found += [f"{path.relative_to(root)} imports {name}" for name in sorted(wrong)]
    return found


def exports(path: Path) -> list[str]:
    """The names in a file's `__all__`; none where it has none."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return ast.literal_eval(node.value)
    return []


def packages(root: Path) -> list[str]:
    """Every folder of the libraries that holds Python files."""
    return sorted({path.parent.relative_to(root).as_posix().replace("/", ".") for path in sources(root, *LIBRARIES)})


def with_lazy_imports(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of a module, and those under `if TYPE_CHECKING:`, where a lazy package says what its names are."""
    lazy = [node for node in body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"]
    return [*body, *(inner for node in lazy for inner in node.body)]


def explanation(root: Path, module: str, name: str) -> str | None:
    """The docstring of a name where it is defined, or the `#:` comment above a constant; imports are followed."""
    path = source_of(root, module)
    if path is None:
        return None
    text = path.read_text(encoding="utf-8")
    for node in with_lazy_imports(tree(path).body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            return ast.get_docstring(node)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    base = origin(module, path.name == "__init__.py", node)
                    if part := source_of(root, f"{base}.{alias.name}"):
                        return ast.get_docstring(tree(part))
                    return explanation(root, base, alias.name)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in [getattr(target, "id", "") for target in targets]:
                above = text.splitlines()[node.lineno - 2] if node.lineno > 1 else ""
                return above.removeprefix("#:").strip() if above.startswith("#:") else None
    return None


def offered_modules(root: Path, package: str) -> set[str]:
    """Names that a package's own file takes from the package itself: its submodules."""
    init = root.joinpath(*package.split("."), "__init__.py")
    nodes = [node for node in tree(init).body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes if origin(package, True, node) == package for alias in node.names}


def unexplained(root: Path) -> list[str]:
    """Names that a package or a module lists in `__all__` without a word about them."""
    found = []
    for path in sources(root, *LIBRARIES):
        module = module_name(root, path)
        found += [f"{module}.{name}" for name in exports(path) if not explanation(root, module, name)]
    return sorted(found)


def in_reference(root: Path) -> list[str]:
    """What the API reference documents, in its order."""
    text = (root / "docs" / "pages" / "api.md").read_text(encoding="utf-8")
    return re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)


def reference_gaps(root: Path) -> list[str]:
    listed = in_reference(root)
    missing = [f"{package} is missing" for package in packages(root) if package not in listed]
    stale = [f"{name} does not exist" for name in listed if not source_of(root, name) and name not in packages(root)]
    return missing + stale


CHECKS = (forbidden_imports, unexplained, reference_gaps)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_tree(check):
    assert check(ROOT) == []


@pytest.mark.parametrize("package", [p for p in packages(ROOT) if (s := source_of(ROOT, p)) and exports(s)])
def test_public_names_are_what_they_seem(package):
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    # A submodule imported later takes the place of a function of the same name.
    modules = {name for name in module.__all__ if inspect.ismodule(getattr(module, name))}
    assert modules == offered_modules(ROOT, package) & set(module.__all__)


def test_something_is_public():
    public = {package: exports(init) for package in packages(ROOT) if (init := source_of(ROOT, package))}
    assert {"jaxspec.compress", "jaxspec.tuning", "hwmodels.catalog"} <= set(packages(ROOT))
    assert "step_operators" in public["hwmodels"]
    assert len(public["hwmodels"]) <= MOST_AT_THE_TOP
    assert not explanation(ROOT, "hwmodels", "no_such_name")


def test_each_study_is_imported_from_the_studies():
    """Its settings, its result and its function; a new study is forgotten nowhere."""
    import jaxspec.studies as studies

    for name in STUDIES:
        study = find_study(name)
        assert getattr(studies, study.config.__name__) is study.config
        assert study.config.__name__ == f"{name.title()}Config"
        assert (
            getattr(studies, f"{name.title()}Result").__module__
            == f"{study.run.partition(':')[0].rpartition('.')[0]}.result"
        )
        module, function = study.run.split(":")
        assert getattr(studies, function) is getattr(importlib.import_module(module), function)
    assert sorted(studies.__all__) == sorted(name for name in studies.__all__ if getattr(studies, name) is not None)
