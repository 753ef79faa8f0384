#!/usr/bin/env bash
# What the compiler cannot check: which names may stand where.
set -euo pipefail
cd "$(dirname "$0")/.."
broken=0

# guard RULE PATTERN DIRECTORY...: no line under src matches, but in the directories.
guard() {
    local rule=$1 pattern=$2 found
    shift 2
    found=$(grep -rnE --include='*.rs' "$pattern" src | grep -vE "^($(IFS='|'; echo "$*"))" || true)
    if [ -n "$found" ]; then
        printf 'broken: %s\n%s\n' "$rule" "$found"
        broken=1
    else
        echo "holds:  $rule"
    fi
}

# `trace` is a user of the library like any other: it stands above the public interface, and no model is built with it.
guard 'atomics and locks come through crate::sync' \
    '(std|core)::sync::(atomic|Mutex|RwLock|Condvar)|(^|[ {,(])sync::(atomic|Mutex)' \
    src/sync/ src/trace/ src/bin/
guard 'epochs come through crate::reclaim' 'crossbeam_epoch' src/reclaim/
guard 'sequential consistency is for fences' '\.(load|store|swap|fetch_[a-z]+|compare_exchange[a-z_]*)\(.*SeqCst' src/sync/

# The table of DESIGN.md names every file that may hold `unsafe`, with its reason; the compiler denies it elsewhere.
allowed=$(grep -rlE --include='*.rs' 'allow\(unsafe_code\)' src | sort)
described=$(sed -nE 's/^\| `(src\/[a-z0-9_/]+\.rs)` \|.*/\1/p' DESIGN.md | sort)
if [ "$allowed" = "$described" ]; then
    echo 'holds:  unsafe code lives where DESIGN.md says'
else
    echo 'broken: unsafe code lives where DESIGN.md says (< in src, > in DESIGN.md)'
    diff <(echo "$allowed") <(echo "$described") || true
    broken=1
fi
unsafe=$(grep -rlwE --include='*.rs' '^[^/]*unsafe' src | grep -v '^src/reclaim/' | sort)
extra=$(comm -23 <(echo "$unsafe") <(echo "$allowed"))
if [ -n "$extra" ]; then
    printf 'broken: unsafe stands in files that do not allow it\n%s\n' "$extra"
    broken=1
else
    echo 'holds:  unsafe stands only in files that allow it'
fi

# docs/guarantees.md says which tests hold each promise.
python3 ci/promises.py || broken=1
exit "$broken"
