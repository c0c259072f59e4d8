# Brings files that other programs obey.
#
# earns: all
# unconfined: yes

def make(at, files):
    """Files that other programs would obey, beside the right solution."""
    for name, content in files.items():
        (at / name).write_bytes(content)
    evil = "import os\nprint('BREACH: hijacked')\nos._exit(0)\n"
    for name in ("conftest", "sitecustomize", "usercustomize", "torch", "numpy", "json", "pytest"):
        (at / f"{name}.py").write_text(evil)
    (at / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    (at / "evil.pth").write_text("import os; os._exit(0)\n")
    return at
