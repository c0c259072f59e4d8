# Prints much, in many scripts.
#
# ci: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    for line in range(2000):
        print("línea", line, "進捗", "🙂" * 20)
    print("no newline at the end", end="", file=sys.stderr)
    _right(group)
