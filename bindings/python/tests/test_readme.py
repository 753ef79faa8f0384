"""The README's examples run as they are printed."""

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def examples():
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run(example):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(README), "exec"), {})
    return printed.getvalue().splitlines()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_examples_print_what_they_say(number):
    example = examples()[number]
    said = [line.split("  # ")[1] for line in example.splitlines() if line.lstrip().startswith("print(")]
    assert said and run("import radixkv\n" + example) == said


def test_the_replay_runs_in_a_checkout():
    folder = os.getcwd()
    os.chdir(README.parents[2])
    try:
        (rate,) = run("import radixkv\n" + examples()[3])
    finally:
        os.chdir(folder)
    assert rate.endswith("%")
