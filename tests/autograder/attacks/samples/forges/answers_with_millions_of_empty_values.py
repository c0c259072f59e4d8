# Answers with millions of empty values.
#
# says: no answer
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
    count = 1_390_000
    answer = b'{"result": ["list"' + b",{}" * count + b"]}"
    for descriptor in [_control()]:
        try:
            os.set_blocking(descriptor, True)
            frame = len(answer).to_bytes(8, "big") + answer
            while frame:
                frame = frame[os.write(descriptor, frame):]
        except OSError:
            pass
    os._exit(0)
