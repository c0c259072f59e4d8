# Recurses, and builds deep structures.
#
# check: broadcast/from_rank_0
# unconfined: yes

import sys

_right = broadcast
sys.setrecursionlimit(3000)

def _depth(n):
    return 0 if n == 0 else 1 + _depth(n - 1)

def broadcast(tensor, src, group=None):
    nested = []
    for _ in range(100_000):
        nested = [nested]
    while nested:
        nested = nested[0]
    assert _depth(2000) == 2000
    _right(tensor, src, group)
