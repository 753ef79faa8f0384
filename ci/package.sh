#!/usr/bin/env bash
# What would be published: packages each crate, checks the archives as a user would build them (with
# default features, and with all that ci/packages.py lists; ci/features.sh has the others). Prints
# the archives' sizes; the core's may have 400 KB.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
list=$(python3 ci/packages.py)
listed=$(python3 ci/packages.py --features)
mapfile -t packages <<<"$list"
limit=400000

mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
built="$target/package"
user="$target/ci/package"
rm -rf "$built" "$user"
mkdir -p "$user"

# Versions that a registry does not have yet are taken from one another: verified below, all at
# once.
cargo package --quiet --locked --allow-dirty --no-verify "${packages[@]/#/-p}"
for archive in "$built"/*.crate; do
    tar -xzf "$archive" -C "$user"
    printf '%8d bytes, %3d files  %s\n' "$(stat -c %s "$archive")" "$(tar -tzf "$archive" | wc -l)" "$(basename "$archive")"
done
python3 ci/links.py "$user"/*/
size=$(stat -c %s "$built"/radixkv-[0-9]*.crate)
if [ "$size" -gt "$limit" ]; then
    echo "the core's archive has $size bytes, $((size - limit)) too many"
    exit 1
fi

# A workspace of nothing but the archives, outside this one: no file of the repository is in reach.
# The profile is ours, so that dependencies that are checked already are not checked again.
cp Cargo.lock "$user/"
{
    printf '[workspace]\nresolver = "3"\nmembers = ["*-*.*.*"]\n\n'
    sed -n '/^\[profile\.dev/,/^$/p' "$root/Cargo.toml"
    printf '[patch.crates-io]\n'
    for package in "${packages[@]}"; do printf '%s = { path = "%s" }\n' "$package" "$(cd "$user" && ls -d "$package"-[0-9]*)"; done
} >"$user/Cargo.toml"
cd "$user"
export CARGO_TARGET_DIR="$target"
while read -r package none all; do
    for features in '' ${all:+"--no-default-features --features=${all// /,}"}; do
        echo "$package ${features:-(default features)}"
        # Unquoted: two options.
        cargo check --quiet -p "$package" $features
    done
done <<<"$listed"
