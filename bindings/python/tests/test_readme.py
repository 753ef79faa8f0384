"""The Python of the README, of the page of verbs and of the first page of the book runs as printed."""

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
VERBS = README.with_name("VERBS.md")
GETTING_STARTED = README.parents[2] / "docs/getting-started-python.md"


def examples(page=README):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run(example):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(README), "exec"), {})
    return printed.getvalue().splitlines()


@pytest.mark.parametrize(("page", "number"), [(README, 0), (README, 1), (README, 2), (VERBS, 0), (GETTING_STARTED, 0)])
def test_examples_print_what_they_say(page, number):
    example = examples(page)[number]
    said = [line.split("  # ")[1] for line in example.splitlines() if line.lstrip().startswith("print(")]
    assert said and run(example) == said


def test_the_replay_runs_in_a_checkout():
    folder = os.getcwd()
    os.chdir(README.parents[2])
    try:
        (rate,) = run(examples()[3])
    finally:
        os.chdir(folder)
    assert rate.endswith("%")
