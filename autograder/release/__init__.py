"""Makes the archive that students get, and refuses to if anything of the solution is in it.

contents   the allow-list: which files, and what is generated for students alone
archive    the zip, the same byte for byte from the same files
handout    the handout, if it was built from the sources as they are
leaks      what must not be in it: solutions, graded checks, caches, places on this machine
"""

from __future__ import annotations

import hashlib

from autograder.release import handout
from autograder.release.archive import NAME, pack, unpacked
from autograder.release.contents import ReleaseError, files, uncommitted
from autograder.release.leaks import leaks

__all__ = ["ReleaseError", "make", "name"]


def name(*, solution: bool) -> str:
    """What the archive is called."""
    return f"{NAME}-solution.zip" if solution else f"{NAME}.zip"


def make(*, solution: bool, secret: bytes | None = None) -> tuple[bytes, list[str]]:
    """The archive, and what to say of it. secret: the course's, which must not be in it.

    Raises:
        ReleaseError: something is in it that must not be, or is not as it was committed, or the
            handout is of other sources.
        StubError, ManifestError: the reference is not in order.
    """
    if changed := uncommitted():
        raise ReleaseError(
            "A release is made from what is committed. Commit or remove:\n"
            + "\n".join(f"  {one}" for one in changed)
        )
    if stale := handout.wrong():
        raise ReleaseError(f"The handout must not get out as it is: {stale}.")
    archive = pack(files(solution=solution))
    inside = unpacked(archive)
    if found := leaks(inside, secret):
        raise ReleaseError(
            "No archive was made, because this must not get out:\n"
            + "\n".join(f"  {leak}" for leak in found)
        )
    handouts = [one for one in handout.FILES if one in inside]
    return archive, [
        f"{len(inside)} files, {len(archive) / 1e6:.1f} MB, nothing in them that must not be",
        f"with {' and '.join(handouts)}" if handouts else "without a handout: none has been built",
        f"sha256 {hashlib.sha256(archive).hexdigest()}",
    ]
