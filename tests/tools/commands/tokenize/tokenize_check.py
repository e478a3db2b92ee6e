"""Holds the ids of `engine tokenize` against those of the library tokenizers.

Usage: tokenize_check.py ENGINE DIR
Trains byte-level tokenizers as those of GPT-2, Llama 3, Qwen 2, SmolLM, Kimi K2 and BLOOM in DIR, and encodes text of many scripts with
emoji, combining and damaged characters. Exit code: 0; 1 where ids differ; 77 without the library or PCRE2.
"""
import glob
import json
import os
import random
import subprocess
import sys

try:
    import numpy
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
except ImportError as error:
    print(error)
    sys.exit(77)

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Expressions of Kimi K2, with intersections of sets, and of BLOOM, with nested ones; one with anchors, options and intervals.
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LARGE = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{LARGE}*{SMALL}+{ENDS}|[^\r\n\p{{L}}\p{{N}}]?{LARGE}+{SMALL}*{ENDS}|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
LINES = r"^\p{L}+|\p{L}+$|(?m:a.)|\h{,2}|[^\S\n]{1,2}+|\N"
EXPRESSIONS = {"llama3": WORDS % "{1,3}", "qwen": WORDS % "", "kimi": KIMI, "bloom": BLOOM, "lines": LINES}
RANGES = [(0x4E00, 0x9FFF), (0x3040, 0x30FF), (0xAC00, 0xD7A3), (0x400, 0x4FF), (0x600, 0x6FF), (0x20, 0x7E)]
SINGLE = [0x20, 0x3000, 0xA0, 0x300, 0x301, 0x308, 0x41, 0x65, 0x31, 0x661, 0xBD, 0x2167, 0x180E, 0x2028, 0x85, 0x200B,
          0xFEFF, 0x1F600, 0x212B, 0x17F]
PIECES = ["👩\u200d💻", "🇩🇪", "❤️", "e\u0301", "ﬁ", "Å", "'s", "'S", "'ſ", " ", "\n", "\r\n", "\t", "<|endoftext|>", "<|im_start|>",
          "I'll don't WE'RE", "  ", "12345678", "3.14", "int main"]


def sample_text():
    draw = random.Random(1)
    root = os.path.dirname(os.path.abspath(__file__)) + "/../../.."
    parts = [open(path, "rb").read() for path in sorted(glob.glob(root + "/docs/*.md"))[:12]]
    for _ in range(200):
        chosen = [chr(draw.randint(*draw.choice(RANGES))) if draw.random() < 0.7 else chr(draw.choice(SINGLE)) for _ in range(150)]
        parts.append("".join(chosen).encode())
        parts.append("".join(draw.choice(PIECES) for _ in range(150)).encode())
        parts.append(bytes(draw.getrandbits(8) for _ in range(150)))
    parts.append(b"a" * 3000 + b" " * 2000 + b"\n" * 1000 + b"=" * 2000)
    return b"".join(parts)


def make(kind, text, path):
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=kind == "prefix")
    words = EXPRESSIONS.get(kind)
    if words:
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        byte_level = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated", False), plain])
    if kind == "smollm":
        byte_level = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.pre_tokenizer = byte_level
    if kind == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=3000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|endoftext|>"])
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("int main", normalized=True)])
    description = json.loads(tokenizer.to_str())
    description["model"]["ignore_merges"] = kind == "llama3"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(description, file, ensure_ascii=False)
    return Tokenizer.from_file(path)


def main(engine, folder):
    data = sample_text()
    with open(folder + "/text.txt", "wb") as file:
        file.write(data)
    text = data.decode("utf-8", errors="replace")
    different = 0
    for kind in ("gpt2", "prefix", "smollm", *EXPRESSIONS):
        path = f"{folder}/{kind}.json"
        expected = make(kind, text, path).encode(text, add_special_tokens=False).ids
        out = f"{folder}/{kind}"
        divided = kind in ("gpt2", "llama3", "qwen", "smollm")
        whole = [] if divided else ["--val-fraction", "0"]
        run = subprocess.run([engine, "tokenize", "--tokenizer", path, "-o", out, "--separator", "none", *whole,
                              folder + "/text.txt"], capture_output=True, text=True)
        if "without PCRE2" in run.stderr or "without utf8proc" in run.stderr:
            print(run.stderr)
            sys.exit(77)
        if run.returncode != 0:
            sys.exit(f"{kind}: {run.stderr}")
        found = numpy.concatenate([numpy.load(out + "/train.npy"), numpy.load(out + "/val.npy")])
        equal = len(found) == len(expected) and bool((found == numpy.array(expected)).all())
        print(f"{kind}: {len(expected)} ids, {'equal' if equal else 'DIFFERENT'}")
        different += not equal
    sys.exit(different)


main(*sys.argv[1:])
