# Prints binary noise on both streams from every rank.
#
# earns: all
# unconfined: yes

import os

_right = barrier

def barrier(group=None):
    for _ in range(100):
        os.write(1, os.urandom(1 << 16))
        os.write(2, b"\x00\xff\x1b]0;owned\x07" * 4096)
    _right(group)
