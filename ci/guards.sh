#!/usr/bin/env bash
# What the compiler cannot check: which names may stand where.
set -euo pipefail
cd "$(dirname "$0")/.."
broken=0

for check in layers import_rules orphans test_layers links; do
    python3 "ci/$check.py" || broken=1
done

# docs/unsafe.md names every file that may hold `unsafe`, with its reason; the compiler denies it elsewhere.
sources=(src crates/*/src)
allowed=$(grep -rlE --include='*.rs' 'allow\(unsafe_code\)' "${sources[@]}" | sort)
described=$(sed -nE 's/^\| `([a-z0-9_/-]*src\/[a-z0-9_/]+\.rs)` \|.*/\1/p' docs/unsafe.md | sort)
if [ "$allowed" = "$described" ]; then
    echo 'holds:  unsafe code is in the files of docs/unsafe.md'
else
    echo 'broken: unsafe code is in the files of docs/unsafe.md (< in the sources, > in docs/unsafe.md)'
    diff <(echo "$allowed") <(echo "$described") || true
    broken=1
fi
unsafe=$(grep -rlwE --include='*.rs' '^[^/]*unsafe' "${sources[@]}" | grep -v '^src/reclaim/' | sort)
extra=$(comm -23 <(echo "$unsafe") <(echo "$allowed"))
if [ -n "$extra" ]; then
    printf 'broken: unsafe stands in files that do not allow it\n%s\n' "$extra"
    broken=1
else
    echo 'holds:  unsafe stands only in files that allow it'
fi

# Every edge has a seeded bug that weakens it, or a reason why nothing needs it; docs/proofs.md shows which.
edges=$(python3 ci/seeded_bugs.py --edges)
shown=$(sed -n '/^<!-- edges -->$/,/^<!-- \/edges -->$/p' docs/proofs.md | grep '^|' || true)
if [ "$shown" = "$edges" ]; then
    echo 'holds:  docs/proofs.md shows the weakenings of ci/seeded_bugs.py'
else
    echo 'broken: docs/proofs.md shows the weakenings of ci/seeded_bugs.py (< shown, > python3 ci/seeded_bugs.py --edges)'
    diff <(echo "$shown") <(echo "$edges") || true
    broken=1
fi
if python3 ci/seeded_bugs.py --texts && python3 crates/radixkv-region/seeded_bugs.py --texts && python3 crates/radixkv-host/seeded_bugs.py --texts; then
    echo 'holds:  every seeded bug has the text that it replaces'
else
    echo 'broken: every seeded bug has the text that it replaces'
    broken=1
fi
named=$(grep -rhoE '^//! \| E[0-9]+ \|' src | grep -oE 'E[0-9]+' | sort -u)
unproven=$(comm -23 <(echo "$named") <(grep -oE '^\| E[0-9]+' <<<"$edges" | grep -oE 'E[0-9]+' | sort -u))
if [ -n "$unproven" ]; then
    printf 'broken: edges that no seeded bug weakens, and that are no margin\n%s\n' "$unproven"
    broken=1
else
    echo 'holds:  every edge is weakened by a seeded bug, or is margin'
fi
# What mutation testing goes through is there, and no ordering is left out.
for script in mutants mutate-orderings; do
    if python3 "ci/$script.py" --files; then
        echo "holds:  ci/$script.py names files and models that are there"
    else
        echo "broken: ci/$script.py names files and models that are there"
        broken=1
    fi
done
# The README's first command builds the cache and its command, and neither the example engine nor ZeroMQ.
crates=$(cargo tree --locked --edges normal,build --prefix none --no-dedupe | awk '{ print $1, $2 }' | sort -u)
count=$(wc -l <<<"$crates")
if [ "$count" -le 145 ] && ! grep -qE '^(radixkv-engine|radixkv-cuda|zeromq|tokenizers|axum) ' <<<"$crates"; then
    echo "holds:  the README's first command builds $count crates"
else
    echo "broken: the README's first command builds at most 145 crates, and no server or tokenizer: it builds $count"
    broken=1
fi
# Each promise of docs/promises.md has tests, which name it.
python3 ci/promises.py || broken=1
exit "$broken"
