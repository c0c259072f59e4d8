# Replaces torch and multirank among the modules.
#
# earns: either
# unconfined: yes

import os, sys, time, signal
_right = barrier

import types
for name in list(sys.modules):
    if name.startswith(("multirank", "json", "<")):
        sys.modules[name] = types.SimpleNamespace()

def barrier(group=None):
    _right(group)
