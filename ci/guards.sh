#!/usr/bin/env bash
# What the compiler cannot check: layers, imports, files of `unsafe`, seeded bugs, promises, links.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_BACKTRACE=0
broken=0

# check PROPERTY COMMAND...: whether the command succeeds, and what it says if it does not.
check() {
    local property=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "holds:  $property"
    else
        printf 'broken: %s\n%s\n' "$property" "$said"
        broken=1
    fi
}

# Which module uses which, and what comes in from outside.
structure=(cargo test -q --locked --manifest-path ci/structure/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/structure")
check 'modules, packages and circles of files are those of docs/layers.md' "${structure[@]}" modules_use
check 'atomics, locks, threads and crates come in where ci/structure says, `SeqCst` is for fences' "${structure[@]}" come_in
check 'what is planted for these two is found' "${structure[@]}" -- --skip modules_use --skip come_in

# docs/unsafe.md names every file that may hold `unsafe`, with its reason; the compiler denies it
# elsewhere.
sources=(src crates/*/src)
allowed=$(grep -rlE --include='*.rs' 'allow\(unsafe_code\)' "${sources[@]}" | sort)
described=$(sed -nE 's/^\| `([a-z0-9_/-]*src\/[a-z0-9_/]+\.rs)` \|.*/\1/p' docs/unsafe.md | sort)
unsafe=$(grep -rlwE --include='*.rs' '^[^/]*unsafe' "${sources[@]}" | grep -v '^src/reclaim/' | sort)
check 'unsafe code is in the files of docs/unsafe.md (< in the sources, > in docs/unsafe.md)' \
    diff <(echo "$allowed") <(echo "$described")
check 'unsafe is only in files that allow it (> in others)' diff /dev/null <(comm -23 <(echo "$unsafe") <(echo "$allowed"))

# Every edge has a seeded bug that weakens it, or a reason why nothing needs it; docs/proofs.md
# shows which.
edges=$(python3 loom_tests/seeded_bugs.py --edges)
shown=$(sed -n '/^<!-- edges -->$/,/^<!-- \/edges -->$/p' docs/proofs.md | grep '^|' || true)
named=$(grep -rhoE '^//! \| E[0-9]+ \|' src | grep -oE 'E[0-9]+' | sort -u)
proven=$(grep -oE '^\| E[0-9]+' <<<"$edges" | grep -oE 'E[0-9]+' | sort -u)
check 'docs/proofs.md shows the weakenings of loom_tests/seeded_bugs.py (< shown, > python3 loom_tests/seeded_bugs.py --edges)' \
    diff <(echo "$shown") <(echo "$edges")
check 'every edge is weakened by a seeded bug, or is margin (> others)' \
    diff /dev/null <(comm -23 <(echo "$named") <(echo "$proven"))
for bugs in loom_tests crates/radixkv-region crates/radixkv-host; do
    check "every seeded bug of $bugs has the text that it replaces" python3 "$bugs/seeded_bugs.py" --texts
done

# Mutation testing names files and models that exist, and leaves out no file with orderings.
for script in mutants mutate-orderings; do
    check "loom_tests/$script.py names files and models that exist" python3 "loom_tests/$script.py" --files
done

# The README's first command builds the cache and its command, and neither the example engine nor
# ZeroMQ.
crates=$(cargo tree --locked --edges normal,build --prefix none --no-dedupe | awk '{ print $1, $2 }' | sort -u)
count=$(wc -l <<<"$crates")
check "the README's first command builds $count crates, at most 145" test "$count" -le 145
check "the README's first command builds no server and no tokenizer (> those that it builds)" \
    diff /dev/null <(grep -E '^(radixkv-engine|radixkv-cuda|zeromq|tokenizers|axum) ' <<<"$crates")

# Every source file is a module, each promise of docs/promises.md has tests, and links lead
# somewhere.
for script in orphans promises links; do
    python3 "ci/$script.py" || broken=1
done
exit "$broken"
