# Recurses without end.
#
# unconfined: yes

import sys
sys.setrecursionlimit(10**9)
def barrier(group=None):
    barrier()
