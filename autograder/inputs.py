"""Inputs of graded checks: drawn from the course's secret, so unknown to students and repeatable.

The same secret and check give the same inputs: the same code gets the same grade, and a regrade
repeats it. Values are whole numbers small enough that every order of the arithmetic is exact in the
dtype, so that equality can be asked for without being unfair to any correct algorithm.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from autograder.paths import SECRET_NAME, private_directory

SECRET_BYTES = 32

Op = Literal["sum", "product", "min", "max", "avg"]

# Whole numbers up to here are exact in the dtype (those of a floating dtype, times any power of 2).
_FLOATING = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24, "float64": 2**53}
_INTEGERS = {
    "uint8": 2**8 - 1,
    "int8": 2**7 - 1,
    "int16": 2**15 - 1,
    "int32": 2**31 - 1,
    "int64": 2**61,  # so that a range from -2**61 to 2**61 can be counted in int64 too
}
# All distinct while there are no more than this; beyond it a repeated value hides no mistake.
_ALL_DISTINCT = 4096


class SecretError(Exception):
    """The course's secret cannot be used as it lies there; the message says how to mend it."""


@dataclass(frozen=True)
class Secret:
    """The course's secret. Known to the grader's own process only."""

    value: bytes = field(repr=False)
    default: bool = False
    """Whether anybody could know it: results graded with it are not official."""

    @property
    def fingerprint(self) -> str:
        """Names the secret in a result without telling it: SHA-256, in hex."""
        return hashlib.sha256(self.value).hexdigest()


def known_secret(seed: int = 0) -> Secret:
    """A secret that is none, for repeatable runs and tests on one's own machine."""
    return Secret(hashlib.sha256(b"not a secret: %d" % seed).digest(), default=True)


def secret_of(seed: int | None) -> Secret:
    """The course's secret, from where it is kept, or a known one made of `seed`.

    Raises SecretError when the course's cannot be used as it lies there.
    """
    return known_secret(seed) if seed is not None else course_secret(private_directory())


def course_secret(private_dir: Path) -> Secret:
    """The secret kept in `private_dir`, made once at random when there is none.

    The directory must be this user's own with mode 0700, the file with mode 0600.

    Raises SecretError when they are readable by others, or are not what they should be.
    """
    path = private_dir / SECRET_NAME
    try:
        private_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = os.lstat(private_dir)
        if not stat.S_ISDIR(directory.st_mode):
            raise SecretError(f"{private_dir} is not a directory but a link. Name its target.")
        _must_be_private(directory, private_dir, "700")
        if not os.path.lexists(path):
            _make_secret(path)
        return Secret(_read_secret(path))
    except OSError as error:
        raise SecretError(
            f"The course's secret cannot be kept in {private_dir}: {error.strerror}."
        ) from None


def _make_secret(path: Path) -> None:
    """Writes a new secret, whole or not at all; of two graders at once, the first one's stays."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _read_secret(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SecretError(
                f"The secret {path} is not a regular file. Remove it to make a new one."
            )
        _must_be_private(status, path, "600")
        value = file.read(SECRET_BYTES + 1)
    if len(value) != SECRET_BYTES:
        raise SecretError(
            f"The secret {path} should hold {SECRET_BYTES} bytes. Restore it from the course's "
            "copy, or remove it to make a new one (all inputs change then)."
        )
    return value


def _must_be_private(status: os.stat_result, path: Path, mode: str) -> None:
    if status.st_uid != os.geteuid():
        raise SecretError(
            f"{path} belongs to another user. Keep the secret in a place of your own."
        )
    if status.st_mode & stat.S_ISVTX:  # such as /tmp, which must stay open
        raise SecretError(
            f"{path} is a folder for everybody. Name one of your own in AUTOGRADER_PRIVATE."
        )
    if status.st_mode & 0o077:
        raise SecretError(f"{path} is open to other users. Close it with: chmod {mode} {path}")


@dataclass(frozen=True)
class Seed:
    """What all random choices of one check come from."""

    key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: Secret, check_id: str) -> Seed:
        """HMAC-SHA256 of the check's id under the course's secret."""
        return cls(hmac.digest(secret.value, check_id.encode(), "sha256"))

    def generator(self, purpose: str = "inputs") -> np.random.Generator:
        """A fresh generator; each purpose has a stream of its own, the same each time.

        Philox is a counter-based cipher: from its own inputs a rank cannot work out its peers'.
        """
        key = hmac.digest(self.key, purpose.encode(), "sha256")
        return np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))


def exact_limit(dtype_name: str, multiple_of: int = 1) -> int:
    """The largest number up to which all multiples of `multiple_of` are exact in the dtype."""
    if dtype_name in _INTEGERS:
        return _INTEGERS[dtype_name]
    if dtype_name not in _FLOATING:
        raise ValueError(f"no exact inputs are known for dtype {dtype_name!r}")
    power_of_two = multiple_of & -multiple_of
    # Half precision ends at 65504 however coarse the steps are.
    largest = 2**15 if dtype_name == "float16" else 2**127
    return min(_FLOATING[dtype_name] * power_of_two, largest)


def exact_bound(dtype_name: str, world_size: int, op: Op, multiple_of: int = 1) -> int:
    """How large inputs may be so that reducing `world_size` of them is exact in every order.

    For "avg" the inputs must be multiples of `world_size`, so that dividing first is exact too.

    Raises ValueError where no input but zero would do.
    """
    limit = exact_limit(dtype_name, multiple_of)
    if op in ("min", "max"):
        bound = limit
    elif op == "product":
        largest = exact_limit(dtype_name)
        bound = round(largest ** (1 / world_size))
        while bound**world_size > largest:
            bound -= 1
    elif op in ("sum", "avg"):
        bound = limit // world_size
    else:
        raise ValueError(f"no such reduction: {op!r}")
    if op == "avg" and (dtype_name in _INTEGERS or multiple_of % world_size):
        raise ValueError(
            f"an average over {world_size} ranks is exact for floating multiples of {world_size}, "
            f"not for multiples of {multiple_of} in {dtype_name}"
        )
    bound -= bound % multiple_of
    if bound == 0:
        raise ValueError(
            f"{op} over {world_size} ranks in {dtype_name}: no multiple of {multiple_of} is small "
            "enough to stay exact"
        )
    return bound


def integers(
    rng: np.random.Generator,
    shape: Sequence[int],
    dtype_name: str,
    low: int,
    high: int,
    multiple_of: int = 1,
) -> npt.NDArray[Any]:
    """Random multiples of `multiple_of` from `low` to `high`, both included.

    Returns numpy's dtype of that name; float32 for bfloat16, where every value is exact as well.

    Raises ValueError when the range is empty or leaves the dtype's exact range.
    """
    first, last = _steps(dtype_name, low, high, multiple_of)
    steps = rng.integers(first, last, size=tuple(shape), endpoint=True)
    return (steps * multiple_of).astype(_numpy_dtype(dtype_name))


def integers_by_rank(
    rng: np.random.Generator,
    world_size: int,
    shape: Sequence[int],
    dtype_name: str,
    low: int,
    high: int,
    multiple_of: int = 1,
) -> list[npt.NDArray[Any]]:
    """`integers` for each rank, no two ranks alike at any index; small ones all distinct.

    So no mistake about whose element went where can hide behind equal values.

    Raises ValueError when the range holds fewer values than there are ranks.
    """
    first, last = _steps(dtype_name, low, high, multiple_of)
    count = last - first + 1
    if count < world_size:
        raise ValueError(
            f"{low} to {high} holds {count} values, too few for {world_size} ranks to differ"
        )
    size = int(np.prod(tuple(shape), dtype=np.int64))
    if world_size * size <= min(count, _ALL_DISTINCT):
        drawn = rng.choice(count, size=(world_size, size), replace=False)
    else:
        drawn = _distinct_columns(rng, world_size, size, count)
    values = ((drawn + first) * multiple_of).astype(_numpy_dtype(dtype_name))
    return [values[rank].reshape(tuple(shape)).copy() for rank in range(world_size)]


def _distinct_columns(
    rng: np.random.Generator, rows: int, columns: int, count: int
) -> npt.NDArray[np.int64]:
    """Numbers below `count`, uniform, with no number twice in a column."""
    drawn = np.empty((rows, columns), np.int64)
    for row in range(rows):
        # Draw among those still free, then step over the taken ones in ascending order.
        new = rng.integers(0, count - row, size=columns)
        for taken in np.sort(drawn[:row], axis=0):
            new += new >= taken
        drawn[row] = new
    return drawn


def _steps(dtype_name: str, low: int, high: int, multiple_of: int) -> tuple[int, int]:
    """The first and the last multiple, counted in steps of `multiple_of`."""
    limit = exact_limit(dtype_name, multiple_of)
    lowest = 0 if dtype_name.startswith("uint") else -limit
    if low < lowest or high > limit:
        raise ValueError(
            f"{low} to {high} leaves the exact range of {dtype_name}, {lowest} to {limit}"
        )
    first, last = -(-low // multiple_of), high // multiple_of
    if first > last:
        raise ValueError(f"there is no multiple of {multiple_of} from {low} to {high}")
    return first, last


def _numpy_dtype(dtype_name: str) -> np.dtype[Any]:
    return np.dtype("float32" if dtype_name == "bfloat16" else dtype_name)
