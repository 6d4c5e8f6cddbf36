"""Check that the code behind each version is the locked one: `python -m tools.recipes_lock [--write]`.

Every `CodeVersion(...)` in the project is found by reading the sources. Its closure is the module that declares it and
all project modules that this imports, directly or indirectly, with the data files beside them. A module is hashed by
its syntax tree without docstrings and import lines: moving, renaming and reformatting a module do not change the hash.
"""

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "recipes.lock"
PACKAGES = ("kopub", "kopub_assets", "resources")
_DATA = (".bas", ".jinja", ".css", ".json", ".yaml")


@dataclass(frozen=True)
class Declared:
    """A `CodeVersion` in a source: its name, its number, and the declaring module."""

    name: str
    version: int
    module: str


class Sources:
    """The project's modules by dotted name, each read and parsed once."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root

    @cached_property
    def paths(self) -> dict[str, Path]:
        found = (path for package in PACKAGES for path in (self._root / package).rglob("*.py"))
        return {self._name(path): path for path in sorted(found)}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {name: ast.parse(path.read_text("utf-8")) for name, path in self.paths.items()}

    def declared(self) -> list[Declared]:
        """Return every `CodeVersion("name", {1: "reason", ...})` of the project, by name."""
        found = []
        for module, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "CodeVersion":
                    name, steps = (ast.literal_eval(argument) for argument in node.args)
                    found.append(Declared(name, max(steps), module))
        return sorted(found, key=lambda each: each.name)

    def closure(self, module: str) -> set[str]:
        """Return `module` and all project modules that it imports, directly or indirectly."""
        found: set[str] = set()
        waiting = {module}
        while waiting:
            name = waiting.pop()
            found.add(name)
            waiting |= self.imports(name) - found
        return found

    @cache  # noqa: B019 - one object reads the sources of a process
    def imports(self, module: str) -> frozenset[str]:
        """Return the project modules that a module imports at run time, not for types."""
        found: set[str] = set()
        for node in _running(self.trees[module]):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = self._base(module, node)
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            else:
                continue
            for name in names:
                found.update(self._known(name))
        return frozenset(found)

    def hashes(self, modules: set[str]) -> dict[str, str]:
        """Return the hashes of the modules and of the data files beside them, by path."""
        found = {str(self.paths[name].relative_to(self._root)): self._hash(name) for name in modules}
        for folder in {self.paths[name].parent for name in modules}:
            for path in folder.iterdir():
                if path.suffix in _DATA:
                    found[str(path.relative_to(self._root))] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return found

    @cache  # noqa: B019
    def _hash(self, module: str) -> str:
        tree = _Plain().visit(ast.parse(self.paths[module].read_text("utf-8")))
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]

    def _known(self, name: str) -> Iterator[str]:
        """Yield the module with a name, and its packages; nothing if there is none."""
        if name in self.paths:
            parts = name.split(".")
            yield from (package for at in range(1, len(parts) + 1) if (package := ".".join(parts[:at])) in self.paths)

    def _base(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        is_package = self.paths[module].name == "__init__.py"
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self._root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a tree except those for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from (inner for other in node.orelse for inner in (other, *_running(other)))
            continue
        yield node
        yield from _running(node)


class _Plain(ast.NodeTransformer):
    """A tree without the parts that never affect a result: docstrings, imports, versions."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
        return node

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_typing else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "CodeVersion":
            return ast.Constant(None)
        return self.generic_visit(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def current(sources: Sources) -> dict[str, dict]:
    """Return the current lock: `closures` by name of a version, and hashes of `modules`."""
    closures, modules = {}, {}
    for each in sources.declared():
        hashes = sources.hashes(sources.closure(each.module))
        modules |= hashes
        closure = hashlib.sha256("".join(sorted(hashes.values())).encode()).hexdigest()[:16]
        closures[each.name] = {"version": each.version, "closure": closure}
    return {"closures": closures, "modules": dict(sorted(modules.items()))}


def problems(now: Mapping[str, dict], locked: Mapping[str, dict], sources: Sources) -> list[str]:
    """Return a line for every version whose code is not the locked code."""
    lines = []
    changed = {path for path, hashed in now["modules"].items() if locked["modules"].get(path) != hashed}
    modules = {each.name: each.module for each in sources.declared()}
    for name, entry in now["closures"].items():
        before = locked["closures"].get(name)
        if before == entry:
            continue
        if before is None or before["version"] != entry["version"]:
            lines.append(f"{name}: version {entry['version']} is not locked; lock it: make lock-recipes")
            continue
        behind = sources.hashes(sources.closure(modules[name])).keys() & changed
        which = ", ".join(sorted(behind)[:4]) or "a module that is gone"
        lines.append(
            f"{name}: its code changed since version {entry['version']} was locked ({which}). Where results change, "
            f"add a step with its reason to CodeVersion({name!r}) in {modules[name]}; where they do not, "
            "lock again: make lock-recipes"
        )
    gone = locked["closures"].keys() - now["closures"].keys()
    return [*lines, *(f"{name}: it is locked and gone; lock again: make lock-recipes" for name in sorted(gone))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="Lock the code as it is.")
    write = parser.parse_args().write
    sources = Sources()
    now = current(sources)
    if write:
        LOCK.write_text(json.dumps(now, indent=1) + "\n")
        return
    found = problems(now, json.loads(LOCK.read_text()), sources)
    print("\n".join(found) or f"{len(now['closures'])} versions are as they were locked")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
