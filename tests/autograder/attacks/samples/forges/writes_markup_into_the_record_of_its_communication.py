# Writes markup into the record of its communication.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import multirank
    multirank.mark("<script>alert(1)</script>")
    with multirank.span("</svg></pre><script>alert(1)</script>[2J"):
        _right(group)
    raise RuntimeError("<script>alert(1)</script>")
