#!/usr/bin/env bash
# Every seeded bug must be found by the model that is named for it. `ci/seeded_bugs.sh [PHRASE]`: only bugs whose name or model contains the phrase literally.
# `ci/seeded_bugs.sh --part K/N`: one of N parts of them.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 ci/seeded_bugs.py "$@"
