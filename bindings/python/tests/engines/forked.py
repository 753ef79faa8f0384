"""Processes forked from one that has imported an engine, and the model that the engines run."""

import multiprocessing
import os


def logged(log, work, argument):
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # Signals to the group of an engine do not reach the tool.
    os.setsid()
    work(argument)


def fork(log, work, argument):
    """Starts a process that has the modules of this one, and neither threads nor a region."""
    process = multiprocessing.get_context("fork").Process(target=logged, args=(log, work, argument))
    process.start()
    return process


def wait(process):
    process.join(900)
    return process.exitcode


def make_model(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=8192,
        initializer_range=0.15,
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)
