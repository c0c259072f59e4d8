# Claims to return a gigabyte from every rank.
#
# says: outside its memory | no answer
# unconfined: yes

import os, sys, time, signal
_right = barrier

import stat
def _control():
    for descriptor in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                return descriptor
        except OSError:
            pass

def barrier(group=None):
    answer = b'{"result": {"entered": ["tensor", "float32", [268435456], 0]}}'
    for descriptor in [_control()]:
        try:
            os.write(descriptor, len(answer).to_bytes(8, "big") + answer)
        except OSError:
            pass
    time.sleep(1)
    os._exit(0)
