# Holds the interpreter's lock for ever.
#
# outcome: timed out | not run
# unconfined: yes

import re

def barrier(group=None):
    re.match(r"(a+)+$", "a" * 64 + "b")
