import os, sys

def _show(what):
    print("BREACH", what)

def _read(path, most=1 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""

def _grep(where, content, most=2):
    for canary in _CANARIES[:most]:
        place = content.find(canary)
        if place >= 0:
            _show((where, content[place : place + 80]))

# Planted with the grader, a line of a check, and what stands in every file that must not ship.
_CANARIES = [b"{canary}", b"def _require" + b"_barrier", b"dta-canary" + b"-5c1e7f0a9d3b"]
_right_barrier = barrier

def barrier(group=None):
    if not hasattr(barrier, "done"):
        barrier.done = True
        _spy()
    _right_barrier(group)
