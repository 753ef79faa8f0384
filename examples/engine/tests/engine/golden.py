"""Logits of the models in a directory (qwen3, llama), as Hugging Face's transformers compute them in f32.

golden.py DIRECTORY > golden.json      needs torch and transformers (4.53.2 was used)
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

PROMPT = [i * 29 % 64 for i in range(150)]

logits = {}
for name in ("qwen3", "llama"):
    path = pathlib.Path(sys.argv[1]) / name
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logits[name] = model(torch.tensor([PROMPT])).logits[0, -1].tolist()
print(json.dumps(logits))
