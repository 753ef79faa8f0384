"""Texts and tokens of chats, as Hugging Face's transformers makes them with the templates beside this file.

golden.py > golden.json      needs transformers and jinja2 (5.23.0 and 3.1.6 were used)
"""

import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
MARKS = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
SYSTEM, USER, ANSWER = "system", "user", "assistant"
CHATS = [
    [(USER, "Why?")],
    [(SYSTEM, " Be brief.\n"), (USER, "  Grüße, <b>&amp;</b> \"x\"\n")],
    [(SYSTEM, "Be brief."), (USER, "a"), (ANSWER, "<think>\nhm\n</think>\n\nb"), (USER, "banana\ttab"), (ANSWER, "")],
    [(USER, "1"), (ANSWER, "<think>\nlong\n\n</think>\n\n2"), (USER, "<tool_response>3</tool_response>")],
    [(USER, "1"), (ANSWER, "<think>x</think>2")],
    [("tool", "1"), (USER, "2")],
    [(SYSTEM, ""), (USER, "")],
]

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
tokenizer.enable_truncation(5)
tokenizer.save(str(HERE / "tokenizer.json"))

golden = []
for name in ("reasoning", "headers", "blocks"):
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(HERE / "tokenizer.json"), bos_token="<|begin_of_text|>", eos_token="<|im_end|>",
        chat_template=(HERE / f"{name}.jinja").read_text(),
    )
    for chat in CHATS:
        for answer in (True, False):
            messages = [{"role": role, "content": content} for role, content in chat]
            try:
                text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer)
                tokens = theirs.apply_chat_template(messages, add_generation_prompt=answer, return_dict=False)
            except Exception as refused:  # a template's own refusal
                text, tokens = None, str(refused)
            golden.append({"template": name, "messages": messages, "answer": answer, "text": text, "tokens": tokens})
print(json.dumps(golden, ensure_ascii=False))
