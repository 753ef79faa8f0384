#!/usr/bin/env bash
# What `promtool check metrics` says of the text at an address: it may complain only of names of
# vLLM and SGLang, which are theirs.
set -euo pipefail
promtool=$1 url=$2
complaints=$(curl --silent --fail "$url" | "$promtool" check metrics 2>&1 | grep -vE '^(vllm|sglang):' || true)
if [ -n "$complaints" ]; then
    printf 'broken: promtool is content\n%s\n' "$complaints"
    exit 1
fi
echo 'holds: promtool is content'
