# Is a link to the grader's own files.
#
# unconfined: yes

def make(at, files):
    """A link to what the grader may read, in the place of a module."""
    for name, content in files.items():
        (at / name).write_bytes(content)
    (at / "collectives.py").unlink()
    (at / "collectives.py").symlink_to(ROOT / "autograder" / "judge.py")
    (at / "more").symlink_to("/")
    return at
