# Is a tar whose member declares a terabyte.
#
# unconfined: yes

def make(at, files):
    packed = at / "terabyte.tar"
    member = tarfile.TarInfo("collectives.py")
    member.size = 1 << 40
    packed.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + b"x" * 10_000)
    return packed
