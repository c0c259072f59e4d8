# Has names that nobody can print, and very long ones.
#
# unconfined: yes
# earns: all

import os

def make(at, files):
    for name, content in files.items():
        (at / name).write_bytes(content)
    for name in (b"\xff\xfe\x1b[2J.py", b"<script>alert(1)&.py", "\u202e.py".encode(), b"a" * 250 + b".py", b"new\nline.py"):
        with open(os.fsencode(at) + b"/" + name, "wb") as file:
            file.write(b"x = 1")
    return at
