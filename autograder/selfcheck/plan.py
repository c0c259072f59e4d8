"""What to try: everything, or in a hurry what a change may have broken."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from autograder.manifest import Manifest
from autograder.paths import ROOT
from autograder.selfcheck.variant import Alternative, Mutant, Variant, function_source

# What a commit can wait for: on two cores so many take three to four minutes.
QUICK_VARIANTS_A_CORE = 40


def quick(variants: Sequence[Variant], checks: Iterable[str], changed: set[str]) -> list[Variant]:
    """Some variants, or all of the changed problems; the same ones for the same arguments.

    An alternative for each problem, then mutants of each in turn, those first that lose most checks
    which no other has lost; of a changed problem all the others too. As far as there is time.

    checks: ids of all checks.
    changed: ids of problems; empty: none in particular, so a sample of all.
    """
    concerned = [one for one in variants if not changed or one.problem in changed]
    wanted = [id for id in checks if not changed or id.partition("/")[0] in changed]
    first = {one.problem: one for one in reversed(concerned) if isinstance(one, Alternative)}
    chosen: list[Variant] = [one for one in concerned if one is first.get(one.problem)]
    chosen += in_turn(cover([one for one in concerned if isinstance(one, Mutant)], wanted))
    if changed:
        chosen += [one for one in concerned if one not in chosen]
    return chosen[: QUICK_VARIANTS_A_CORE * (os.cpu_count() or 1)]


def in_turn(mutants: Iterable[Mutant]) -> list[Mutant]:
    """The first of each problem, then the second of each, and so on."""
    by_problem: defaultdict[str, list[Mutant]] = defaultdict(list)
    for one in mutants:
        by_problem[one.problem].append(one)
    return [one for turn in zip_longest(*by_problem.values()) for one in turn if one is not None]


def cover(mutants: Sequence[Mutant], checks: Iterable[str]) -> list[Mutant]:
    """Few mutants that between them lose every check.

    Preferred are those that lose at most half of one problem's checks: a mutant that loses all of
    them says little about any.
    """
    left = set(checks)
    losses = {one.name: {id for id in left if one.must_lose(id)} for one in mutants}
    sizes = Counter(id.partition("/")[0] for id in left)
    telling = [
        one
        for one in mutants
        if len(one.problems) == 1 and 2 * len(losses[one.name]) <= sizes[one.problem]
    ]
    chosen: list[Mutant] = []
    for some in (telling, mutants):
        for _ in some:
            best = max(some, key=lambda one: len(losses[one.name] & left) / len(one.problems))
            if not losses[best.name] & left:
                break
            chosen.append(best)
            left -= losses[best.name]
    return chosen


def changed_problems(manifest: Manifest) -> set[str]:
    """Problems whose own files the last commit, or work since, has touched.

    Empty when there is none, or when there is no way to know.
    """
    files = _git("diff", "--name-only", "HEAD~1")
    found: set[str] = set()
    for path in (files or "").splitlines():
        found |= _problems_of(manifest, path)
    return found


def _problems_of(manifest: Manifest, path: str) -> set[str]:
    ids = {problem.id for problem in manifest.problems}
    owned = re.fullmatch(r"autograder/(?:checks/test_|selfcheck/mutants/)(\w+)\.py", path)
    if owned:
        return {owned[1]} & ids
    module = re.fullmatch(r"reference/(\w+)\.py", path)
    if module:
        return _problems_of_functions(manifest, module[1], path)
    return set()


def _problems_of_functions(manifest: Manifest, module: str, path: str) -> set[str]:
    """The problems whose functions differ from those of the commit before the last."""
    before, now = _git("show", f"HEAD~1:{path}"), (ROOT / path).read_text(encoding="utf-8")
    problems = manifest.problems_of_module(module)
    if before is None:
        return {problem.id for problem in problems}
    return {
        problem.id
        for problem in problems
        if any(_differs(name, before, now) for name in problem.names)
    }


def _differs(name: str, before: str, now: str) -> bool:
    try:
        return function_source(before, name) != function_source(now, name)
    except (SyntaxError, ValueError):
        return True


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
