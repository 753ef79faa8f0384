#!/usr/bin/env bash
# Every seeded bug must be found by the model that is named for it. `ci/teeth.sh [WORDS]`: only bugs whose name has them.
# `ci/teeth.sh --part K/N`: one of N parts of them.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 ci/teeth.py "$@"
