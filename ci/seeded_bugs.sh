#!/usr/bin/env bash
# Every seeded bug must be found by its model. `ci/seeded_bugs.sh [PHRASE]` runs only bugs whose name or
# model contains the phrase literally, `--part K/N` one of N parts of them.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 ci/seeded_bugs.py "$@"
