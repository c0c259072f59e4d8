"""All changes of the reference's solution regions, by names that outlive a change elsewhere."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autograder import stubs
from autograder.manifest import Manifest, ManifestError
from autograder.mutation.operators import Patch, patches
from autograder.paths import REFERENCE, module_files

EQUIVALENT = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Candidate:
    """One change. name: of the function, and the change, such as "all_reduce: n - 1 -> n + 1"; with
    "#2" for the second of that name in the function."""

    module: str
    problem: str
    line: int
    name: str
    patch: Patch

    @property
    def id(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def files(self) -> dict[str, bytes]:
        """The reference with this change."""
        files = module_files(REFERENCE)
        file = f"{self.module}.py"
        return files | {file: self.patch.applied(files[file].decode()).encode()}


def candidates(manifest: Manifest, modules: Sequence[str]) -> list[Candidate]:
    """All of these modules, in the order of the text, that can be compiled.

    Raises ManifestError where a module has no problems.
    """
    found = []
    for module in modules:
        if module not in manifest.modules:
            known = ", ".join(manifest.modules)
            raise ManifestError(f"There is no module `{module}`; the modules are: {known}.")
        source = (REFERENCE / f"{module}.py").read_text(encoding="utf-8")
        names: Counter[str] = Counter()
        for region in stubs.regions(source, f"{module}.py"):
            problem = manifest.owner_of(module, region.owner)
            own = patches(source, region.begin + 1, region.end - 1)
            for patch in sorted(own, key=lambda patch: (patch.begin, -patch.end)):
                if not _compiles(patch.applied(source)):
                    continue
                name = f"{region.qualname}: {_line(patch.old)} -> {_line(patch.new)}"
                names[name] += 1
                if names[name] > 1:
                    name += f" #{names[name]}"
                line = source.count("\n", 0, patch.begin) + 1
                found.append(Candidate(module, problem.id, line, name, patch))
    return found


def sample(found: Sequence[Candidate], count: int, seed: int) -> list[Candidate]:
    """So many of them, the same for the same seed, in their order."""
    chosen = set(random.Random(seed).sample(range(len(found)), min(count, len(found))))
    return [one for place, one in enumerate(found) if place in chosen]


def equivalents(file: Path = EQUIVALENT) -> Mapping[str, str]:
    """Changes that no check can notice, by id, with the reason."""
    listed = tomllib.loads(file.read_text(encoding="utf-8"))
    return {id: str(reason) for id, reason in listed.items()}


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _line(text: str) -> str:
    return " ".join(text.split())
