# Raises an exception that cannot be shown.
#
# unconfined: yes

class _Odd(BaseException):
    def __str__(self):
        raise KeyboardInterrupt

    def __reduce__(self):
        raise SystemExit(0)

def barrier(group=None):
    raise _Odd
