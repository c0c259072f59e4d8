# Ends the process when an object of its is collected.
#
# ci: yes
# unconfined: yes

import os

class _Bomb:
    def __del__(self):
        os._exit(0)

def barrier(group=None):
    _Bomb()
