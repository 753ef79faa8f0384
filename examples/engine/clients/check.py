"""The served engine as OpenAI's own client sees it.

check.py ENGINE        needs openai and prometheus-client (check.sh installs them); starts the engine itself
"""

import signal
import subprocess
import sys
import time
import urllib.request

import openai
from prometheus_client.parser import text_string_to_metric_families

QUESTION = "Where do I find the maps of the coast, and may I take one home?"
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


class Server:
    """An engine with seeded weights on a free port."""

    def __init__(self, *arguments):
        command = [sys.argv[1], "--serve", "127.0.0.1:0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.url = line.split()[-1]
        assert self.url.startswith("http://127.0.0.1:"), line
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60)

    def metrics(self):
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {sample.name: sample.value for family in families for sample in family.samples}

    def idle(self):
        """Waits until no request is served."""
        for _ in range(500):
            if self.metrics()["vllm:num_requests_running"] == 0:
                return
            time.sleep(0.02)
        raise AssertionError("a request goes on that nobody waits for")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def answers(server):
    create = server.client.completions.create
    whole = create(model="seeded", prompt=QUESTION, max_tokens=24, temperature=0.8, seed=5)
    assert whole.usage.prompt_tokens == len(QUESTION)
    pieces = create(
        model="seeded", prompt=QUESTION, max_tokens=24, temperature=0.8, seed=5, stream=True,
        stream_options={"include_usage": True},
    )
    pieces = list(pieces)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.choices[0].text
    assert pieces[-1].usage.prompt_tokens_details.cached_tokens == (len(QUESTION) - 1) // 16 * 16
    salted = create(
        model="seeded", prompt=QUESTION, max_tokens=1,
        extra_body={"cache_salt": "tenant", "skip_cache_insert": True, "prompt_cache_key": "key"},
    )
    assert salted.usage.prompt_tokens_details.cached_tokens == 0
    assert [model.id for model in server.client.models.list()] == ["seeded"]


def chats(server):
    create = server.client.chat.completions.create
    control = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
    whole = create(model="seeded", messages=CHAT, max_completion_tokens=12, temperature=0, extra_body=control)
    assert whole.choices[0].message.role == "assistant" and whole.choices[0].finish_reason in ("stop", "length")
    pieces = list(create(model="seeded", messages=CHAT, max_tokens=12, temperature=0, stream=True))
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == whole.choices[0].message.content
    # The next turn continues the first.
    turn = [*CHAT, {"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
    assert create(model="seeded", messages=turn, max_tokens=1).usage.prompt_tokens_details.cached_tokens >= 64


def cancels(server):
    for _ in range(8):
        stream = server.client.completions.create(model="seeded", prompt=QUESTION, max_tokens=5_000, stream=True)
        next(iter(stream))
        stream.close()
    server.idle()


def refuses(server):
    def refused(error, **fields):
        try:
            server.client.completions.create(**{"model": "seeded", "prompt": "a", **fields})
        except error as refusal:
            return refusal
        raise AssertionError(f"{fields} passed")

    assert refused(openai.BadRequestError, temperature=-1).param == "temperature"
    assert refused(openai.BadRequestError, n=2).param == "n"
    assert refused(openai.BadRequestError, prompt="x" * 40_000).code == "context_length_exceeded"
    assert refused(openai.NotFoundError, model="gpt").code == "model_not_found"


def overloaded():
    server = Server("--threads", "1", "--running", "1", "--waiting", "1", "--blocks", "512")
    create = server.client.completions.create
    # An end token ends a greedy answer early: many are tried.
    streams, refusal = [], None
    for number in range(64):
        try:
            prompt = f"{number} {QUESTION}"
            streams.append(create(model="seeded", prompt=prompt, max_tokens=5_000, stream=True, temperature=2.0, timeout=0.5))
        except openai.RateLimitError as refused:
            refusal = refused
            break
        except openai.APITimeoutError:
            pass
    assert refusal is not None and int(refusal.response.headers["retry-after"]) >= 1
    for stream in streams:
        stream.close()
    server.idle()
    server.end()


def ends(server):
    """What was accepted is answered to its end."""
    stream = server.client.completions.create(model="seeded", prompt=QUESTION, max_tokens=200, stream=True)
    pieces = iter(stream)
    next(pieces)
    server.process.send_signal(signal.SIGTERM)
    assert list(pieces)[-1].choices[0].finish_reason in ("stop", "length")
    assert server.process.wait(60) == 0


def main():
    server = Server()
    for check in (answers, chats, refuses, cancels):
        check(server)
        print(f"holds: {check.__name__}")
    metrics = server.metrics()
    assert metrics["vllm:prefix_cache_queries_total"] >= metrics["vllm:prefix_cache_hits_total"] > 0
    rate = metrics["vllm:prefix_cache_hits_total"] / metrics["vllm:prefix_cache_queries_total"]
    assert abs(metrics["sglang:cache_hit_rate"] - rate) < 1e-9
    print("holds: metrics")
    ends(server)
    print("holds: ends")
    overloaded()
    print("holds: overloaded")


main()
