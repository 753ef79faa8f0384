# Sourced with a name: `lanes FUNCTION...` runs functions in parallel, which call `step`. A step's
# output is shown when the step ends and kept in target/ci/NAME, with summary.md, the table of
# steps.
logs="${CARGO_TARGET_DIR:-target}/ci/$1"
rm -rf "$logs"
mkdir -p "$logs"
printf '| step | seconds | verdict |\n|---|---:|---|\n' >"$logs/summary.md"

# step NAME COMMAND...: its failure does not stop the lane.
step() {
    local name=$1 began=$SECONDS verdict=ok log
    log="$logs/${1//[^a-z0-9]/-}.log"
    shift
    "$@" >"$log" 2>&1 || verdict=FAILED
    printf '\n--- %s: %s, %d s\n%s\n' "$name" "$verdict" $((SECONDS - began)) "$(cat "$log")"
    printf '| %s | %d | %s |\n' "$name" $((SECONDS - began)) "$verdict" >>"$logs/summary.md"
    [ $verdict = ok ] || printf '\n--- %s failed; its last lines:\n%s\n' "$name" "$(tail -n 40 "$log")" >>"$logs/failed"
}

lanes() {
    for lane in "$@"; do "$lane" & done
    wait
    [ ! -f "$logs/failed" ] || cat "$logs/failed"
    printf '\n--- %d s in %d lanes, %s\n' "$SECONDS" $# "$(date -u +%Y-%m-%d)" | tee -a "$logs/summary.md"
    cat "$logs/summary.md"
    [ ! -f "$logs/failed" ]
}
