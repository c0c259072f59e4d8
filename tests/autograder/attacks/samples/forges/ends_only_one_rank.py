# One rank ends with success, the others wait for it.
#
# says: exit
# unconfined: yes
# ci: yes

import os

_right = barrier

def barrier(group=None):
    if dist.get_rank() == 2:
        os._exit(0)
    _right(group)
