#!/usr/bin/env bash
# A table of the compiled kernels, from the disassembly of prebuilt/*.cubin. Checks that no kernel
# spills or uses local memory, that decode, extend, cascade and latent copy 16 bytes at a time and
# use tensor cores (HMMA, or HGMMA where the products of warpgroups are used), and that the other
# kernels load 16 bytes at a time.
set -euo pipefail
cd "$(dirname "$0")"
. ./tools.sh
disassembly=$(mktemp -d)
trap 'rm -rf "$disassembly"' EXIT
printf '| target | kernel | registers | stack | local | spills | HMMA | LDSM | 16-byte copies | 16-byte loads |\n'
printf '|---|---|---|---|---|---|---|---|---|---|\n'
for target in sm_80 sm_90 sm_90a; do
    for cubin in prebuilt/*.$target.cubin; do
        # ELF warnings of the disassembler are dropped; its errors end the script.
        cuobjdump -res-usage "$cubin" > "$disassembly/usage" 2> /dev/null
        cuobjdump -sass "$cubin" > "$disassembly/sass" 2> /dev/null
        awk -v target=$target '
            FNR == NR && /Function /      { sub(/:.*/, "", $2); name = $2 }
            FNR == NR && /REG:/           { match($0, /REG:[0-9]+/); reg[name] = substr($0, RSTART + 4, RLENGTH - 4)
                                            match($0, /STACK:[0-9]+/); stack[name] = substr($0, RSTART + 6, RLENGTH - 6)
                                            match($0, /LOCAL:[0-9]+/); own[name] = substr($0, RSTART + 6, RLENGTH - 6) }
            FNR == NR                     { next }
            /Function :/                  { name = $3 }
            /STL|LDL/                     { spill[name]++ }
            /HG?MMA/                      { mma[name]++ }
            /LDSM/                        { ldsm[name]++ }
            /LDGSTS.*\.128/               { copy[name]++ }
            /LDG\.E\.[A-Z0-9.]*128|LDG\.E\.128/ { load[name]++ }
            END {
                for (k in reg) {
                    bad = stack[k] > 0 || own[k] > 0 || spill[k] > 0
                    if (k ~ /wgmma/) bad = bad || !mma[k] || !copy[k]
                    else if (k ~ /decode|extend|cascade|latent/) bad = bad || !mma[k] || !copy[k] || !ldsm[k]
                    else if (k !~ /empty/) bad = bad || !load[k]
                    printf "| %s | `%s` | %d | %d | %d | %d | %d | %d | %d | %d |%s\n", target, k, reg[k], stack[k], own[k], spill[k],
                        mma[k], ldsm[k], copy[k], load[k], bad ? " BROKEN" : ""
                }
            }' "$disassembly/usage" "$disassembly/sass" | sort
    done
done | tee "$disassembly/table"
rows=$(wc -l < "$disassembly/table")
if [ "$rows" -ne 152 ]; then
    echo "broken: $rows kernels, not 152"
    exit 1
fi
if grep -q BROKEN "$disassembly/table"; then
    echo 'broken: the rows above that end with BROKEN'
    exit 1
fi
echo 'holds:  no spills and no local memory; 16-byte loads everywhere; tensor cores in decode, extend, cascade and latent'
