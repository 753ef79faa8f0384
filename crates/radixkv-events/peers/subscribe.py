#!/usr/bin/env python3
"""A subscriber of pyzmq and msgpack against the example `publish`: a program that has nothing of this package.

    python3 peers/subscribe.py target/release/examples/publish [--seconds 5] [--rate 20000]

Three trials, each of which ends with the publisher's blocks, all of them and no others:
  rate     all events come, none twice, at the rate, one event a batch and ten
  gap      the subscriber is cut off for a while; what it missed is asked for again
  restart  another publisher takes the ports; the subscriber sees its epoch and takes a snapshot
Prints a line for each; the exit status is 1 if one fails.
"""

import argparse
import json
import subprocess
import sys
import time

import msgpack
import zmq

END = b"\xff" * 8
PATIENCE_MS = 20_000


class Publisher:
    """The example in a process of its own."""

    def __init__(self, program, *options):
        command = [program, *map(str, options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.at = json.loads(self.process.stdout.readline())

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def held(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)


class Subscriber:
    """What a worker holds, from its batches."""

    def __init__(self, context, at):
        self.context, self.at = context, at
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        self.socket.connect(at["endpoint"])
        self.blocks, self.next, self.epoch = set(), 0, None
        self.events = self.asked = self.gaps = self.restarts = self.snapshots = 0

    def close(self):
        self.socket.close(linger=0)

    def ask(self, what):
        """The batches of an answer."""
        socket = self.context.socket(zmq.DEALER)
        socket.connect(self.at["replay"])
        socket.send_multipart([b"", what])
        while True:
            assert socket.poll(PATIENCE_MS), "no answer"
            _, _, seq, payload = socket.recv_multipart()
            if seq == END:
                break
            yield int.from_bytes(seq, "big"), payload
        socket.close(linger=0)

    def snapshot(self):
        self.blocks = set()
        for seq, payload in self.ask(b"snapshot"):
            self.next = seq
            self.apply(msgpack.unpackb(payload))
        self.snapshots += 1

    def apply(self, batch):
        _, events, _ = batch
        for event in events:
            self.epoch = event.get("epoch", self.epoch)
            if event["type"] == "BlockStored":
                assert event["parent_block_hash"] is None or event["parent_block_hash"] in self.blocks, "no parent"
                self.blocks.update(event["block_hashes"])
            elif event["type"] == "BlockRemoved":
                assert self.blocks.issuperset(event["block_hashes"]), "removed and not held"
                self.blocks.difference_update(event["block_hashes"])
            else:
                self.blocks = set()
        return len(events)

    def take(self, seq, payload):
        """Takes a live batch into account, and what was missed before it."""
        batch = msgpack.unpackb(payload)
        epoch = next((event["epoch"] for event in batch[1] if "epoch" in event), self.epoch)
        if self.epoch not in (None, epoch):
            self.restarts += 1
            self.snapshot()
        if seq > self.next:
            self.gaps += 1
            for missed, payload in self.ask(self.next.to_bytes(8, "big")):
                if missed == self.next:
                    self.events += self.apply(msgpack.unpackb(payload))
                    self.next += 1
                    self.asked += 1
        if seq == self.next:
            self.events += self.apply(batch)
            self.next += 1
        assert seq < self.next, f"batch {seq} comes where {self.next} should"

    def until(self, number):
        """Receives until the batch before a number was taken."""
        while self.next < number:
            assert self.socket.poll(PATIENCE_MS), f"batch {self.next} of {number} does not come"
            _, seq, payload = self.socket.recv_multipart()
            self.take(int.from_bytes(seq, "big"), payload)

    def check(self, held):
        assert (len(self.blocks), sum(self.blocks) % 2**64) == (held["blocks"], held["digest"]), "other blocks"


def subscribed(context, publisher):
    subscriber = Subscriber(context, publisher.at)
    time.sleep(0.5)
    return subscriber


def receive(subscriber, events):
    """Receives until so many events were taken."""
    while subscriber.events < events:
        assert subscriber.socket.poll(PATIENCE_MS), f"event {subscriber.events} of {events} does not come"
        _, seq, payload = subscriber.socket.recv_multipart()
        subscriber.take(int.from_bytes(seq, "big"), payload)


def rate(context, program, options):
    for batch in (1, 10):
        events = options.rate * options.seconds
        publisher = Publisher(program, "--events", events, "--rate", options.rate, "--batch", batch)
        subscriber = subscribed(context, publisher)
        publisher.go()
        began = time.monotonic()
        receive(subscriber, events)
        seconds = time.monotonic() - began
        held = publisher.held()
        subscriber.until(held["next"])
        subscriber.check(held)
        assert subscriber.gaps == 0 and held["lost"] == 0, f"{subscriber.gaps} gaps, {held['lost']} batches lost"
        print(
            f"rate     {subscriber.events} events in {held['next']} batches: sent at {held['events'] / held['seconds']:.0f}/s, "
            f"received at {subscriber.events / seconds:.0f}/s, 0 lost"
        )
        subscriber.close()
        publisher.end()


def gap(context, program, options):
    events = options.rate * options.seconds
    publisher = Publisher(program, "--events", events, "--rate", options.rate, "--batch", 10, "--ring", events)
    subscriber = subscribed(context, publisher)
    publisher.go()
    subscriber.until(100)
    subscriber.socket.disconnect(publisher.at["endpoint"])
    time.sleep(1)
    subscriber.socket.connect(publisher.at["endpoint"])
    receive(subscriber, events)
    held = publisher.held()
    subscriber.until(held["next"])
    subscriber.check(held)
    assert subscriber.gaps > 0 and subscriber.asked > 0, "there was no gap"
    print(f"gap      {subscriber.asked} batches missed in {subscriber.gaps} gaps and received again, of {held['next']}")
    subscriber.close()
    publisher.end()


def restart(context, program, options):
    few = ["--events", 20_000, "--rate", options.rate, "--ring", 10]
    publisher = Publisher(program, *few, "--seed", 1)
    subscriber = subscribed(context, publisher)
    publisher.go()
    held = publisher.held()
    subscriber.until(held["next"])
    subscriber.check(held)
    publisher.end()
    at = ["--endpoint", publisher.at["endpoint"], "--replay", publisher.at["replay"]]
    again = Publisher(program, *few, *at, "--seed", 2)
    again.go()
    again.held()
    # libzmq subscribes again when the socket is asked for something.
    subscriber.socket.poll(1000)
    again.go()
    held = again.held()
    subscriber.until(held["next"])
    subscriber.check(held)
    assert subscriber.restarts == 1 and subscriber.snapshots == 1, "no restart was seen"
    assert subscriber.epoch == again.at["epoch"] != publisher.at["epoch"]
    print(f"restart  seen by its epoch; {held['blocks']} blocks by a snapshot and what followed")
    subscriber.close()
    again.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=20_000)
    options = parser.parse_args()
    context, failed = zmq.Context(), False
    for trial in (rate, gap, restart):
        try:
            trial(context, options.program, options)
        except AssertionError as error:
            failed = True
            print(f"FAILED   {trial.__name__}: {error}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
