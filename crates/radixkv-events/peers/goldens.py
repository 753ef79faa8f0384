#!/usr/bin/env python3
"""Hashes of blocks by an independent producer: cbor2 and hashlib, as vLLM's `sha256_cbor` makes them, and SGLang's chain.

    pip install cbor2 && python3 peers/goldens.py > tests/hashes.json
"""

import hashlib
import json

import cbor2

TOKENS = [0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 1, 2, 3, 4]
BLOCK_SIZE = 4
SEEDS = ["0", "a seed"]
SCOPES = [
    {"lora_name": None, "cache_salt": None},
    {"lora_name": "an adapter", "cache_salt": None},
    {"lora_name": None, "cache_salt": "ein Salz: ä"},
    {"lora_name": "an adapter", "cache_salt": "salt" * 80},
]


def sha256_cbor(value):
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def blocks():
    return [tuple(TOKENS[at : at + BLOCK_SIZE]) for at in range(0, len(TOKENS), BLOCK_SIZE)]


def vllm(seed, scope):
    parent, hashes = sha256_cbor(seed), []
    for at, tokens in enumerate(blocks()):
        adapter = [scope["lora_name"]] if scope["lora_name"] else []
        salt = [scope["cache_salt"]] if scope["cache_salt"] and at == 0 else []
        parent = sha256_cbor((parent, tokens, tuple(adapter + salt) or None))
        hashes.append(parent.hex())
    return hashes


def sglang():
    parent, hashes = b"", []
    for tokens in blocks():
        parent = hashlib.sha256(parent + b"".join(token.to_bytes(4, "little") for token in tokens)).digest()
        number = int(parent.hex()[:16], 16)
        hashes.append(number - 2**64 if number >= 2**63 else number)
    return hashes


def main():
    rows = [{"seed": seed, **scope, "hashes": vllm(seed, scope)} for seed in SEEDS for scope in SCOPES]
    found = {"tokens": TOKENS, "block_size": BLOCK_SIZE, "sha256_cbor": rows, "sglang": sglang()}
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
