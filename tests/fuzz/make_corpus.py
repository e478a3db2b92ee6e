#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: small valid inputs, from which fuzzing begins.

Usage: tests/fuzz/make_corpus.py ENGINE    (the program, which makes the checkpoint and a run)
Inputs that fuzzing found lie beside them in tests/fuzz/corpus/TARGET and are left alone.
"""
import gzip
import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{target}-{name}").write_bytes(content.encode() if isinstance(content, str) else content)


def npy(descr, shape, data, fortran=False):
    text = repr({"descr": descr, "fortran_order": fortran, "shape": shape})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def npz(method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in (("w.npy", npy("<f4", (2, 2), bytes(16))),
                              ("turned.npy", npy("<f8", (2, 3), bytes(range(48)), True))):
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def safetensors(arrays):
    header, data = {}, b""
    for name, (dtype, shape, content) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_definitions():
    """Choices that model_targets.cc makes definitions of: threads and batch; kind and extents of the sample; classes; the
    ending; then each layer's kind, links and options (how each is given, and its value)."""
    left_out = [3]
    images = [1, 2, 0, 4, 0, 3, 0, 1, 0, 1, 0, 1]                   # conv2d: 4 channels, kernel 3, padding 1
    images += [2, 2] + left_out * 2 + [5, 2] + [4, 2, 0, 2] + left_out  # batch_norm2d, relu, group_norm
    pooled = [6, 2, 0, 2] + left_out * 3 + [8, 2, 0, 2, 0, 2] + [9, 2]
    text = [13, 2, 2, 0, 10] + left_out + [14, 2, 0, 8] + left_out + [15, 2] + left_out
    text += [17, 2, 0, 2] + left_out + [16, 2, 0, 1] + [0, 2, 0, 8] + left_out
    write("model_definition", "images", bytes([1, 1, 2, 7, 7, 1, 2, 1] + images + pooled[:-2]))
    write("model_definition", "pooled", bytes([0, 2, 9, 7, 7, 1, 2, 3] + images + pooled))
    write("model_definition", "text", bytes([1, 1, 4, 7, 2, 3] + text))


def torch_pickle(protocol):
    """A state dict as torch.save pickles it: a whole storage, a view with strides, shorts."""
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value

    def tensor(storage, key, elements, rest):
        return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + text(b"storage") + b"ctorch\n" + storage + b"\n" + text(key) +
                text(b"cpu") + b"K" + bytes([elements]) + b"tQ" + rest + b"\x89ccollections\nOrderedDict\n)RtR")
    state = (b"}q\0(" + text(b"w") + tensor(b"FloatStorage", b"0", 12, b"K\0K\3K\4\x86K\4K\1\x86") + text(b"t") +
             tensor(b"FloatStorage", b"0", 12, b"K\1K\2K\3\x86K\1K\4\x86") + text(b"s") +
             tensor(b"ShortStorage", b"1", 2, b"K\0K\2\x85K\1\x85") + b"u")
    return b"\x80" + bytes([protocol]) + b"}(" + text(b"epoch") + b"M\1\1" + text(b"model") + state + b"u."


def torch_archives():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (("data.pkl", torch_pickle(2)), ("byteorder", b"little"), ("data/0", bytes(48)),
                              ("data/1", bytes(4)), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo("a/" + name), content)
    write("torch_archive", "views", out.getvalue())
    write("torch_pickle", "views", torch_pickle(2))
    write("torch_pickle", "framed", b"\x80\x04\x95" + bytes(8) + b"}\x94(\x8c\x01x\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R\x94"
          b"\x8c\x01y]\x94(K\1N\x88G" + bytes(8) + b"\x8a\2\xff\xffe\x8c\x01zh\1u.")


def png(color, depth, row):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    palette = chunk(b"PLTE", bytes(12)) if color == 3 else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, depth, color, 0, 0, 0)) + palette +
            chunk(b"IDAT", zlib.compress((b"\0" + row) * 2)) + chunk(b"IEND", b""))


def jpeg():
    def segment(marker, content):
        return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content
    one_code = bytes([1] + [0] * 15 + [0])  # a table of one code, "0", for the symbol 0
    return (b"\xff\xd8" + segment(0xDB, b"\0" + b"\1" * 64) + segment(0xC0, struct.pack(">BHHBBBB", 8, 8, 8, 1, 1, 0x11, 0)) +
            segment(0xC4, b"\x00" + one_code) + segment(0xC4, b"\x10" + one_code) +
            segment(0xDA, bytes([1, 1, 0, 0, 63, 0])) + b"\x3f\xff\xd9")


def idx():
    images = struct.pack(">4I", 0x803, 2, 28, 28) + bytes(2 * 784)
    labels = struct.pack(">2I", 0x801, 2) + bytes([3, 7])
    write("idx", "plain", struct.pack("<H", len(images)) + images + labels)
    packed = gzip.compress(images, mtime=0)
    write("idx", "gzip", struct.pack("<H", len(packed)) + packed + gzip.compress(labels, mtime=0))


def frame(kind, payload):
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def membership_frames(text):
    def ident(high, low):
        return struct.pack("<QQ", high, low)

    def member(number, host, since):
        return (ident(number, number) + text(b"n%d" % host) + text(b"id") + text(b"127.0.0.1") +
                struct.pack("<iii", 40 + number, 5000, 5001) + ident(7, host) + struct.pack("<iQ", number, since))

    def roster(generation, *members):
        return struct.pack("<Q", generation) + text(b"nonce") + struct.pack("<I", len(members)) + b"".join(members)

    def message(kind, sender, generation, rest):
        return frame(kind, ident(sender, sender) + ident(0, 0) + struct.pack("<Q", generation) + rest)

    def report(sender, generation, stage, hears, others, *members):
        return message(64, sender, generation, struct.pack("<QBBBIB", 1, stage, 0, 1, 2, hears) + struct.pack("<I", len(others)) +
                       b"".join(ident(o, o) for o in others) + struct.pack("<I", len(members)) + b"".join(members))
    ready = report(2, 1, 2, 3, [4], member(2, 2, 0))
    waits = report(4, 1, 0, 3, [], member(4, 2, 0))
    ballot = struct.pack("<Q", 1) + ident(1, 1)
    none = struct.pack("<Q", 0) + ident(0, 0)
    base = roster(1, member(1, 1, 1), member(2, 2, 1))
    answer = struct.pack("<Q", 2) + ballot
    write("membership_frames", "decides", waits + ready + message(67, 2, 1, answer + none + ident(7, 2) + struct.pack("<Q", 0)) +
          message(69, 2, 1, answer + none + ident(7, 2)))
    write("membership_frames", "rejections", ready + message(66, 2, 1, base + struct.pack("<Q", 9) + ident(2, 2)) +
          message(70, 2, 1, answer + struct.pack("<Q", 9) + ident(2, 2) + ident(7, 2)))
    write("membership_frames", "goes-on", message(68, 2, 1, base + struct.pack("<Q", 5) + ident(2, 2) +
          roster(2, member(2, 2, 1))) + message(65, 2, 2, roster(2, member(2, 2, 1)) + struct.pack("<I", 1) + member(4, 2, 0)))
    write("membership_frames", "leaves", report(2, 1, 3, 3, []))


def frames():
    def text(value):
        return struct.pack("<I", len(value)) + value
    hello = struct.pack("<II", 0x31524745, 7) + bytes(32) + struct.pack("<iiiiI", 1, 2, 77, 0, 0)
    hello += b"".join(text(t) for t in (b"job", b"build", b"0" * 32, b"host", b"id", b"process"))
    write("store_frames", "hello", frame(1, hello))
    write("store_frames", "refuse", frame(5, b"\x04" + text(b"no \x1b[2J\n")))
    write("store_frames", "settings", frame(21, struct.pack("<I", 1) + text(b"--lr") + text(b"0.1")))
    write("store_frames", "progress", frame(6, struct.pack("<Iii", 2, 1, 3)))

    peers = b"".join(text(b"n%d" % r) + text(b"id") + struct.pack("<i", 10 + r) for r in range(2))
    start = frame(7, bytes(32) + struct.pack("<I", 2) + peers)
    write("member_frames", "progress", frame(6, struct.pack("<IiIi", 1, 1, 1, 0)) + frame(8, b"\x04" + text(b"gives up")))
    write("member_frames", "start", start + frame(13, struct.pack("<I", 1) + text(b"value")) + frame(14, text(b"step 3")) +
          frame(23, text(b"rank 1 waits")))
    write("member_frames", "failure", start + frame(15, struct.pack("<iB", 1, 1) + text(b"ranks disagree")) + frame(17, b""))

    def step(control, kind, payload=b""):
        return struct.pack("<BBB", control, kind, len(payload)) + payload
    both = step(0, 19) + step(1, 19)
    request = struct.pack("<I", 1) + text(b"key")
    write("server_members", "keys", both + step(0, 10, request) + step(1, 9, request + text(b"value")) +
          step(1, 11, request + struct.pack("<q", 5)) + step(0, 12, request))
    write("server_members", "leave", both + step(0, 14, text(b"step 1")) + step(0, 16) + step(1, 16))
    write("server_members", "abandon", both + step(1, 18, b"\x01" + text(b"ranks disagree")) + step(0xFE, 22))
    membership_frames(text)
    word = struct.pack("<QIBBH", 7, 1, 1, 0, 0)
    write("control_words", "same", word * 4)
    write("control_words", "one-more", word + word + struct.pack("<QIBBH", 12, 2, 2, 0, 1))
    write("rendezvous_file", "one", "engine rendezvous 1\nat 127.0.0.1:29500\nnonce " + "0" * 32 + "\nsecret " + "0" * 64 +
          "\npid 42 7\nhost n1 id\nend\n")
    write("control_line", "setup", "env X=1\0secret 00ff\0go\0signal 15\0")


LAYERS = """sample_shape = [2, 1, 1]
classes = 2
[[layer]]
kind = "flatten"
[[layer]]
kind = "dense"
name = "fc"
out = 2
"""


def checkpoint(engine):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "m.toml").write_text(LAYERS)
        (folder / "m.safetensors").write_bytes(safetensors(
            {"fc.weight": ("F32", [2, 2], bytes(16)), "fc.bias": ("F32", [2], bytes(8))}))
        subprocess.run([engine, "import", "m.safetensors", "-o", "m.ckpt", "--model", "m.toml"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        write("checkpoint", "imported", (folder / "m.ckpt").read_bytes())


def run(engine):
    """run.json and status.json of a run, without what is this machine's."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([engine, "train", "--model", "mlp", "--dataset", "synthetic", "--steps", "2", "--save-dir", "run"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        record = json.loads((folder / "run/run.json").read_text())
        for start in record["starts"]:
            start.update(hosts=["n1"], command="engine train", machines=[{"ranks": [0], "cpu": "a CPU", "threads": "1"}])
        write("run_record", "one", json.dumps(record).replace(str(folder), "folder"))
        status = json.loads((folder / "run/status.json").read_text())
        status.update(host="n1", pid=42, process_space="n1's", start_time=1)
        for rank in status["ranks"]:
            rank.update(host="n1", pid=42)
        write("run_status", "one", json.dumps(status))


def tokenizer():
    """A byte-level tokenizer with two merges, an added token and an expression."""
    others = [byte for byte in range(256) if not (0x21 <= byte <= 0x7E or 0xA1 <= byte != 0xAD)]
    shown = [chr(0x100 + others.index(byte)) if byte in others else chr(byte) for byte in range(256)]
    split = {"type": "Split", "pattern": {"Regex": "\\s+|\\p{L}+|[^\\s\\p{L}]+"}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return json.dumps({
        "added_tokens": [{"id": 258, "content": "<|end|>", "special": True, "normalized": False}], "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "model": {"type": "BPE", "merges": ["a l", ["al", "l"]],
                  "vocab": {text: token for token, text in enumerate(shown + ["al", "all"])}}}, ensure_ascii=False)


def onnx_model():
    """A convolution, a norm, a mean and a matrix, by the field numbers of onnx.proto."""
    def varint(value):
        out = b""
        while value >= 128:
            out, value = out + bytes([value % 128 + 128]), value // 128
        return out + bytes([value])

    def field(number, value):
        if isinstance(value, int):
            return varint(number * 8) + varint(value)
        value = value.encode() if isinstance(value, str) else value
        return varint(number * 8 + 2) + varint(len(value)) + value

    def node(kind, inputs, output, *attributes):
        parts = [field(1, name) for name in inputs] + [field(2, output), field(3, kind), field(4, kind)]
        return field(1, b"".join(parts + [field(5, attribute) for attribute in attributes]))

    def tensor(name, shape, count):
        return field(5, b"".join(field(1, extent) for extent in shape) + field(2, 1) + field(8, name) + field(9, bytes(4 * count)))

    def value(name, *shape):
        dims = b"".join(field(1, field(1, extent)) for extent in shape)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))

    pads = field(1, "pads") + b"".join(field(8, 1) for _ in range(4)) + field(20, 7)
    graph = node("Conv", ["x", "conv.weight"], "a", pads)
    graph += node("BatchNormalization", ["a", "w", "w", "w", "w"], "b") + node("Relu", ["b"], "c")
    graph += node("GlobalAveragePool", ["c"], "d") + node("Shape", ["d"], "s") + node("Gather", ["s", "zero"], "n")
    graph += node("Flatten", ["d"], "e") + node("MatMul", ["e", "fc.weight"], "f") + node("Add", ["f", "fc.bias"], "y")
    graph += tensor("conv.weight", (2, 3, 3, 3), 54) + tensor("w", (2,), 2) + tensor("fc.weight", (2, 3), 6)
    graph += tensor("fc.bias", (3,), 3) + field(5, field(1, 1) + field(2, 7) + field(8, "zero") + field(7, b"\0"))
    graph += field(11, value("x", 1, 3, 8, 8)) + field(12, value("y", 1, 3))
    return field(7, graph) + field(8, field(2, 18))


def main():
    checkpoint(pathlib.Path(sys.argv[1]).resolve())
    run(pathlib.Path(sys.argv[1]).resolve())
    images = {"schema": 1, "kind": "images", "name": "mnist", "shape": [2, 2, 1], "classes": 2,
              "class_names": ["a", [255, 1]], "scaled": False, "normalization": "standard", "mean": [0.5],
              "deviation": [0.25]}
    column = {"column": 0, "text": False, "mean": 1.5, "deviation": 2.0, "constant": False}
    text = {"column": 2, "text": True, "categories": ["x", "y"], "mean": 0.0, "deviation": 1.0, "constant": False}
    rows = {"schema": 1, "kind": "features", "name": "t.csv", "shape": [1, 1, 3], "classes": 2,
            "table": {"separator": "auto", "columns": 3, "label": 1, "header": ["a", "b", "c"],
                      "features": [column, text]}}
    table = {**rows["table"], "missing": ["-999", "NA"], "label_decimal": ",",
             "features": [{**column, "decimal": ",", "odd": ["Total"]}, text]}
    for name, statement in (("images", images), ("rows", rows), ("dialect", {**rows, "schema": 3, "table": table})):
        write("sample_statement", name, json.dumps(statement))
    write("safetensors", "two", safetensors({"a": ("F32", [2], bytes(8)), "b.\u00e4": ("I64", [], bytes(8))}))
    write("npz", "stored", npz(zipfile.ZIP_STORED))
    write("npz", "deflated", npz(zipfile.ZIP_DEFLATED))
    torch_archives()
    write("npy_header", "f4", npy("<f4", (3, 4), b""))
    write("csv", "header", "a,b,label\n1,x,u\n2.5,\"y \"\"z\"\"\",v\n,?,u\n3,x,v\n")
    write("csv", "semicolon", "1;2;x\r\n3;4;y\r\n")
    write("csv", "pandas", ",0,1,2\n0,1.5,None,x\n1,\"1,234\",7,y\n2,-0.5,9,x\n")
    write("csv", "german", "\ufeffsep=;\r\na;a;b\r\n1,5;1.234;x\r\n-;2.345.678,5;y\r\n")
    write("csv", "r", "\"x\",\"kind\"\n\"1\",2.5,\"u\"\n\"2\",NA,\"v\"\n\"3\",1e3,\"u\"\n")
    write("csv", "utf16", "a\tb\tkind\r\n1\t\U0001f600\tu\r\n2\ty\tv\r\n".encode("utf-16"))
    idx()
    write("cifar10", "one", bytes([3]) + bytes(3072))
    write("tokens", "plain", struct.pack("<8H", *range(8)))
    write("tokens", "header", struct.pack("<3I", 20240520, 1, 8) + bytes(1012) + struct.pack("<8H", *range(8)))
    for name, how, x, y in (
            ("rows", 0, npy("<f4", (3, 3), bytes(36)), npy("|u1", (3,), bytes([0, 1, 2]))),
            ("images", 0, npy("|u1", (2, 1, 2, 3), bytes(12)), npy("<i4", (2,), struct.pack("<2i", 1, 0))),
            ("masks", 3, npy("<f8", (2, 2, 3), bytes(96)), npy("|u1", (2, 2, 3), bytes([1, 0] * 6))),
            ("tokens", 0, npy("<i8", (2, 2), struct.pack("<4q", 1, 5, 0, 2)), npy("<i8", (2, 2), struct.pack("<4q", 1, 0, 0, 1)))):
        write("arrays", name, bytes([how]) + struct.pack("<H", len(x)) + x + y)
    for name, content in (("rgb", png(2, 8, bytes(6))), ("grey1", png(0, 1, b"\x80")), ("palette", png(3, 8, bytes(2))),
                          ("rgba16", png(6, 16, bytes(16)))):
        write("image", name, content)
    write("image", "jpeg", jpeg())
    write("tokenizer", "small", tokenizer())
    write("hostlist", "slurm", "node[1-3,07-09],gpu[a,b]x[1-2],last")
    frames()
    write("config", "small", "[run]\nmodel = \"mlp\"\ndataset = \"glyphs\"\n[batch]\nbatch-size = 8\n")
    for name, value in (("list", "30,60"), ("interval", "2e"), ("real", "1e-3"), ("devices", "cpu:0,cpu:1")):
        write("option_values", name, b"\x11" + value.encode())
    write("layer_list", "small", LAYERS)
    write_definitions()
    write("onnx", "small", onnx_model())
    for seed in range(8):
        write("onnx_graph", f"random-{seed}", random.Random(seed).randbytes(120))
    write("published_config", "gpt2", json.dumps(
        {"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 4, "n_positions": 6, "vocab_size": 5}))
    write("published_config", "qwen3", json.dumps(
        {"model_type": "qwen3", "num_hidden_layers": 1, "hidden_size": 4, "intermediate_size": 3,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6, "max_position_embeddings": 9,
         "vocab_size": 5, "rope_scaling": None, "use_sliding_window": False, "eos_token_id": 3, "tie_word_embeddings": True}))
    call = {"communicator": 0, "sequence": 1, "operation": "all_reduce", "count": 4, "type": "f32", "op": "sum",
            "begin_us": 5, "end_us": None, "state": "running"}
    write("flight_record", "one", json.dumps(
        {"schema": 1, "rank": 0, "world_size": 2, "pid": 7, "written_us": 9, "host": "a", "backend": "gloo",
         "reason": "b", "activity": "c", "collectives": [call]}))


main()
