"""Text from a trained network, and the speed of one of GPT-2's size: float32, and with weights of 8 and 4 bits.

    python examples/generate.py                                     # a minute; the large network has random weights
    python examples/generate.py --layers 2 --width 96 --tokens 500  # a smaller one
    python examples/generate.py --steps 2000                        # trains for longer, and writes better

The network is that of gpt.py. To write a token is to read all weights once, so memory decides how fast that goes: with int8
weights (`quantization.quantize_weights`) it is a quarter of the bytes, which the compiled kernels convert as they read them, and with
blocks of 4 bits a seventh.
"""

import argparse
import copy
import json
import time
from pydoc_data.topics import topics

import numpy as np
from gpt import GPT, Writer, corpus, train

import megengine as mge
from megengine.quantization import quantize_weights


def in_all(net: GPT) -> list[tuple[str, GPT]]:
    """The network, and copies of it with weights of 8 and 4 bits."""
    return [("float32", net), ("int8", quantize_weights(copy.deepcopy(net))), ("4 bits", quantize_weights(copy.deepcopy(net), bits=4))]


def write(net: GPT, alphabet: list[str], start: str, count: int) -> str:
    written = Writer(net).write([alphabet.index(letter) for letter in start], count)
    return start + "".join(alphabet[number] for number in written)


def speed(net: GPT, prompt: int, count: int) -> tuple[float, float]:
    """Tokens a second: of a prompt that is read at once, and written. The first round compiles both programs."""
    writer = Writer(net)
    for _ in range(2):
        writer.length = 0
        start = time.perf_counter()
        writer.read(list(range(prompt)))
        read = time.perf_counter()
        for number in range(3):
            writer.read([number])
        begin = time.perf_counter()
        for number in range(count):
            writer.read([number])
        written = time.perf_counter()
        writer.step.kernels()  # waits until all are compiled
    return prompt / (read - start), count / (written - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="of training the small network")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=50257, help="how many there are")
    parser.add_argument("--context", type=int, default=1024)
    args = parser.parse_args()
    if args.context < 64:
        parser.error(f"a context of {args.context} is too short for this program; give 64 or more")

    mge.random.seed(0)
    numbers, alphabet = corpus("\n".join(topics.values()))  # what Python's help() says
    small = GPT(len(alphabet), 128, 64, heads=4, layers=2)
    losses = train(small, numbers, args.steps, 16)
    print(f"trained: loss {losses[0]:.2f} at first, {np.mean(losses[-10:]):.2f} at last")
    for name, net in in_all(small):
        print(f"{name} writes:", json.dumps(write(net, alphabet, "The ", 60)))

    large = GPT(args.tokens, args.context, args.width, heads=12, layers=args.layers)
    weights = sum(parameter.size for parameter in large.parameters())
    print(f"a network of {weights / 1e6:.1f} million weights")
    for name, net in in_all(large):
        read, written = speed(net, args.context // 8, args.context // 32)
        print(f"{name}: reads {read:.0f} tokens a second, writes {written:.1f}")


if __name__ == "__main__":
    main()
