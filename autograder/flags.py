"""What looks odd in a submission, for a person of the staff to judge. No flag changes points.

Words are looked for, and nothing is parsed: a submission's source may be made to break a parser. So
honest work is flagged now and then, and whoever hides a word is not: the boundary does not rest on
this.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from autograder.paths import REFERENCE, module_files
from autograder.text import safe_line

_MOST = 20
_WORDS = {
    "ends or signals processes": rb"\bos\._exit\b|\bos\.(?:kill|killpg|abort)\b",
    "starts processes": rb"\bsubprocess\b|\bmultiprocessing\b|\bos\.(?:fork|system|popen|exec)",
    "reaches below Python": rb"\bctypes\b|\bcffi\b|/proc/|\bptrace\b",
    "uses the network": rb"\bsocket\b|\burllib\b|\bhttp\.client\b"
    rb"|^[ \t]*(?:import|from)[ \t]+requests\b|\brequests\.(?:get|post|put|request|Session)\(",
    "looks into its callers": rb"\b_getframe\b|\bf_back\b|\bf_locals\b|\bgc\.get_|\binspect\.stack",
    "replaces what others use": rb"\bsys\.modules\b|\b__code__\b"
    rb"|\bsetattr\(\s*(?:torch|dist|time|np)\b"
    rb"|^[ \t]*(?:torch|dist|time|np|numpy|multirank)(?:\.\w+)+[ \t]*=(?!=)",
    "could pass data past the record of communication": rb"\bopen\(|/dev/shm\b|\bmmap\b"
    rb"|\bshared_memory\b|\bFileStore\b|\bTCPStore\b",
    "could communicate past the record": rb"\bmultirank\.(?:recording|processes)\b|\b_recorder\b"
    rb"|\._(?:inner|real)\.(?:all|barrier|broadcast|gather|recv|reduce|scatter|send)"
    rb"|\b_get_default_store\b|\btorch\.ops\.c10d|\b_distributed_c10d\b",
    "packs objects that run code": rb"\bpickle\b|\bmarshal\b|\b__reduce(?:_ex)?__\b",
}
_PATTERNS = {why: re.compile(words, re.MULTILINE) for why, words in _WORDS.items()}
_MEANT_FOR_OTHERS = re.compile(
    r"(?:^|/)(?:conftest\.py|pytest\.ini|tox\.ini|setup\.cfg|(?:site|user)customize\.py"
    r"|(?:torch|numpy|pytest)(?:\.py|/)|[^/]*\.pth)"
)


def suspicions(files: Mapping[str, bytes], ignored: Sequence[str] = ()) -> list[str]:
    """One line for each thing, with its file and line, at most twenty.

    Modules that are as they were handed out are not looked at.

    ignored: names of what the submission held besides its modules.
    """
    handed_out = module_files(REFERENCE)  # what has no gaps to fill is the same there
    theirs = {name: text for name, text in files.items() if text != handed_out.get(name)}
    odd = itertools.chain(_odd_names(ignored), _odd_lines(theirs))
    found = list(itertools.islice(odd, _MOST + 1))
    return [*found[:_MOST], "and more like these"] if len(found) > _MOST else found


def _odd_names(ignored: Sequence[str]) -> Iterator[str]:
    for name in ignored:
        if _MEANT_FOR_OTHERS.search(name):
            yield f"{safe_line(name)}: other programs obey files of that name (it was not taken)"


def _odd_lines(files: Mapping[str, bytes]) -> Iterator[str]:
    for name, content in sorted(files.items()):
        for why, pattern in _PATTERNS.items():
            for match in pattern.finditer(content):
                line = content.count(b"\n", 0, match.start()) + 1
                text = content[match.start() : match.start() + 80].strip().splitlines()[0]
                yield f"{name}, line {line}: {why}: {safe_line(text)}"
