# Imports rare modules late, and handles signals and exits.

import os, sys, time, signal
_right = barrier

import atexit
signal.signal(signal.SIGUSR2, lambda *_: None)
atexit.register(print, "bye")

def barrier(group=None):
    import asyncio, ctypes, decimal, multiprocessing, platform, uuid, xml.dom
    import torch.onnx
    asyncio.run(asyncio.sleep(0))
    platform.platform(), uuid.uuid4()
    signal.raise_signal(signal.SIGUSR2)
    os.kill(os.getpid(), 0)
    _right(group)
