#!/usr/bin/env python3
"""Tokens per second of `engine sample` beside transformers.generate, by turns, at the size of GPT-2.

    tests/peers/text_generation.py build/release/tools/engine --python VENV/bin/python --dir DIR

The model has GPT-2's 124 million parameters, random, and a made-up tokenizer of 50,257 tokens; both
continue the same prompts. Rates are those after the first token, which costs the prompt. A line per
case: medians of both rates, and the median, least and largest ratio of the pairs.
VENV needs torch and transformers.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

PROMPTS = ["the quick brown fox", "a text", "numbers 1 2 3", "once upon a time", "to be", "light", "one more line", "end"]


def byte_names():
    """The characters that stand for the 256 bytes in GPT-2's tokenizer."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    names = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


def tokenizer_json():
    """Bytes, and merges of two of them up to the size of GPT-2's vocabulary."""
    names = byte_names()
    merges = [[a, b] for a in names for b in names][:50257 - 257]
    vocabulary = {token: i for i, token in enumerate(names + ["".join(merge) for merge in merges])}
    coder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 50256, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
             "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": merges}
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
                       "pre_tokenizer": coder, "post_processor": None, "decoder": coder, "model": model})


def write_model(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).save_pretrained(folder)
    pathlib.Path(folder, "tokenizer.json").write_text(tokenizer_json())


class Times:
    """Called once for each token, as a stopping criterion that never stops."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **_):
        import torch
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def serve(options):
    """The peer: for each line `texts` on stdin, generates and prints its rate."""
    import torch
    from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast
    torch.set_num_threads(options.threads)
    model = GPT2LMHeadModel.from_pretrained(options.dir, dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=options.dir + "/tokenizer.json", pad_token="<|endoftext|>",
                                        padding_side="left")
    for line in sys.stdin:
        texts = PROMPTS[:int(line)]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        times = Times()
        with torch.inference_mode():
            model.generate(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=options.sample,
                           top_k=0, max_new_tokens=options.tokens, pad_token_id=50256, stopping_criteria=[times])
        rate = len(texts) * (len(times.times) - 1) / (times.times[-1] - times.times[0])
        print(rate, flush=True)


def engine_rate(options, threads, texts, dtype):
    prompts = pathlib.Path(options.dir, f"prompts-{texts}.txt")
    prompts.write_text("".join(prompt + "\n" for prompt in PROMPTS[:texts]))
    result = subprocess.run([options.engine, "sample", options.dir, "--prompts", prompts, "-n", str(options.tokens),
                             "--temperature", "1" if options.sample else "0", "--ignore-end", "--device", "cpu", "--threads",
                             str(threads), "--weight-dtype", dtype, "--rate"], capture_output=True, text=True, check=True)
    return float(re.search(r"([0-9.]+) tokens/s", result.stderr).group(1))


def peer_rate(peer, texts):
    peer.stdin.write(f"{texts}\n")
    peer.stdin.flush()
    return float(peer.stdout.readline())


def compare(options, threads, texts):
    command = [options.python, __file__, "--serve", "--dir", options.dir, "--threads", str(threads), "--tokens",
               str(options.tokens)] + (["--sample"] if options.sample else [])
    rates = {"peer": [], "f32": [], "bf16": []}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as peer:
        peer_rate(peer, texts)
        for _ in range(options.rounds):
            rates["peer"].append(peer_rate(peer, texts))
            for dtype in ("f32", "bf16"):
                rates[dtype].append(engine_rate(options, threads, texts, dtype))
    row = [threads, texts, f"{statistics.median(rates['peer']):.1f}"]
    for dtype in ("f32", "bf16"):
        ratios = [ours / theirs for ours, theirs in zip(rates[dtype], rates["peer"])]
        row += [f"{statistics.median(rates[dtype]):.1f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
    row.append(f"{os.getloadavg()[0]:.1f}")
    print("|", " | ".join(map(str, row)), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("engine", nargs="?")
    parser.add_argument("--python", default=sys.executable, help="with torch and transformers")
    parser.add_argument("--dir", required=True, help="folder for the model, made if it is missing")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--texts", default="1,8")
    parser.add_argument("--sample", action="store_true", help="sample; by default the most likely token is taken")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        return write_model(options.dir)
    if options.serve:
        options.threads = int(options.threads)
        return serve(options)
    if options.engine is None:
        parser.error("the path of the engine program is missing")
    if not pathlib.Path(options.dir, "tokenizer.json").exists():
        subprocess.run([options.python, __file__, "--write", "--dir", options.dir], check=True)
    print("| threads | texts | transformers, tokens/s | f32, tokens/s | ratio | bf16, tokens/s | ratio | load |")
    print("|" + "---|" * 8)
    for threads in map(int, options.threads.split(",")):
        for texts in map(int, options.texts.split(",")):
            compare(options, threads, texts)


if __name__ == "__main__":
    main()
