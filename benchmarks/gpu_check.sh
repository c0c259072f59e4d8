#!/usr/bin/env bash
# The whole GPU path on a machine with GPUs, in under eight minutes: what there is, NCCL under
# multirank, bandwidth, and a grading of the reference. Ends with a short table, and with 0 if all of
# it worked. Needs a torch with CUDA (PYTHON names its interpreter); results go to ${OUT:-gpu_check}.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${OUT:-gpu_check}
mkdir -p "$out"

if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.device_count())'; then
    echo "There is no GPU here that torch can see: nothing was checked."
    exit 2
fi

failed=0
table=""
check() { # name, seconds at most, command ...
    local name=$1 limit=$2 started=$SECONDS said=passed
    shift 2
    printf '\n== %s\n' "$name"
    timeout "$limit" "$@" 2>&1 | tee "$out/$name.log"
    local code=${PIPESTATUS[0]}
    if [ "$code" != 0 ]; then
        said="failed (exit code $code)"
        failed=1
    fi
    table+=$(printf '%-12s %4s s   %s' "$name" "$((SECONDS - started))" "$said")$'\n'
}

check doctor 60 "$python" -m autograder doctor
check worlds 90 "$python" -m pytest -q tests/multirank/test_nccl.py
check bandwidth 90 "$python" -m benchmarks.gpus
check grade 220 "$python" -m autograder grade reference --backend nccl --seed 1 --out "$out/graded"
"$python" - "$out/graded/grade.json" <<'END' | tee "$out/outcomes.log"
import collections, json, sys
checks = json.load(open(sys.argv[1]))["checks"]
outcomes = collections.Counter(check["outcome"] for check in checks)
print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
for check in checks:
    if check["outcome"] not in ("passed", "needs hardware"):
        print(f"{check['number']} {check['id']}: {check['outcome']}: {check['message']}")
sys.exit(any(check["outcome"] not in ("passed", "needs hardware") for check in checks))
END
[ "${PIPESTATUS[0]}" = 0 ] || failed=1

printf '\n%s' "$table"
"$python" -c 'import torch; print(torch.cuda.device_count(), "x", torch.cuda.get_device_name(0))'
exit "$failed"
