#!/usr/bin/env python3
"""Writes networks of PyTorch that read token ids as ONNX files, with ids and what PyTorch and onnxruntime compute from them.

Usage: torch_tokens.py FOLDER NAME [EXPORTER...]
NAME is one of NETWORKS: for each EXPORTER (all but set23_plain), NAME_EXPORTER.onnx, and NAME.npz with `input` and `logits`. Or trace_NAME: NAME.onnx and
NAME.npz, the network in float64, `batches`, `labels`, and the losses of 20 steps of SGD. Exit code 77 where a package is missing.
"""
import copy
import math
import pathlib
import sys
import warnings

try:
    import numpy
    import onnx  # noqa: F401: the older exporter needs it
    import onnxruntime
    import onnxscript  # noqa: F401: the newer one
    import torch
except ImportError as error:
    print(error)
    sys.exit(77)

VOCABULARY, LENGTH, CLASSES, WIDTH, HEADS = 23, 12, 7, 16, 4
STEPS, BATCH, RATE = 20, 5, 0.1
EXPORTS = {
    "eval": {"dynamo": False},
    "train": {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False},
    "dynamo": {"dynamo": True},
    "plain": {"dynamo": True, "optimize": False},
    "set23": {"dynamo": True, "opset_version": 23},
    "set23_plain": {"dynamo": True, "opset_version": 23, "optimize": False},
}


class Classifier(torch.nn.Module):
    """A transformer encoder whose mean over the positions, or first position, is classified."""

    def __init__(self, takes_first=False):
        super().__init__()
        self.takes_first = takes_first
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(LENGTH + 4, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.1, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        x = self.encoder(x)
        return self.fc(x[:, 0] if self.takes_first else x.mean(1))


class Block(torch.nn.Module):
    def __init__(self, masks):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.1)
        self.masks = masks
        if masks:
            self.register_buffer("bias", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def attention(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, dim=2))
        if self.masks:
            scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(k.shape[-1]))
            scores = scores.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
            y = torch.softmax(scores, dim=-1) @ v
        else:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, WIDTH))

    def forward(self, x):
        x = x + self.dropout(self.attention(self.ln_1(x)))
        return x + self.down(torch.nn.functional.gelu(self.up(self.ln_2(x))))


class Decoder(torch.nn.Module):
    """A language model in nanoGPT's structure."""

    def __init__(self, masks=False, tied=True):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.h = torch.nn.ModuleList(Block(masks) for _ in range(2))
        self.ln_f = torch.nn.LayerNorm(WIDTH)
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.wte.weight = self.lm_head.weight

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], dtype=torch.long, device=idx.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Attention(torch.nn.Module):
    """A decoder with RMSNorm, whose queries, keys and values come from layers of their own."""

    def __init__(self, key_heads=HEADS, mask="", has_weight=True, keeps_rows=False, **options):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.norm_1 = torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.norm_2 = torch.nn.RMSNorm(WIDTH, eps=1e-6, elementwise_affine=has_weight)
        self.q, self.o = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.k, self.v = (torch.nn.Linear(WIDTH, key_heads * WIDTH // HEADS) for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)
        later = torch.ones(LENGTH, LENGTH).triu(1).bool()
        masks = {"": None, "added": torch.zeros(LENGTH, LENGTH).masked_fill(later, float("-inf")),
                 "boolean": ~later & torch.ones(LENGTH, LENGTH).triu(-3).bool()}
        self.register_buffer("mask", masks[mask])
        self.key_heads, self.keeps_rows, self.options = key_heads, keeps_rows, options

    def forward(self, ids):
        x = self.norm_1(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))
        q, k, v = (layer(x) for layer in (self.q, self.k, self.v))
        if self.keeps_rows:  # [batch, length, heads * size]
            y, *_ = torch.onnx.ops.attention(q, k, v, q_num_heads=HEADS, kv_num_heads=self.key_heads, **self.options)
        else:
            q, k, v = (value.unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2) for value in (q, k, v))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, **self.options)
            y = y.transpose(1, 2).flatten(2)
        return self.head(self.norm_2(x + self.o(y)))


class TextCnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.convs = torch.nn.ModuleList(torch.nn.Conv1d(WIDTH, 8, size) for size in (2, 3, 4))
        self.dropout = torch.nn.Dropout(0.2)
        self.fc = torch.nn.Linear(24, CLASSES)

    def forward(self, x):
        x = self.embedding(x).transpose(1, 2)
        features = [torch.relu(conv(x)) for conv in self.convs]
        pooled = [torch.nn.functional.max_pool1d(features[0], LENGTH - 1).squeeze(2), *(f.max(2).values for f in features[1:])]
        return self.fc(self.dropout(torch.cat(pooled, 1)))


class Ids(torch.nn.Module):
    """A model of transformers that reads ids alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids).logits


def published(kind):
    try:
        import transformers
    except ImportError as error:
        print(error)
        sys.exit(77)
    if kind == "distilbert":
        config = transformers.DistilBertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, n_layers=2, n_heads=HEADS,
                                               dim=WIDTH, hidden_dim=32, num_labels=CLASSES, attention_dropout=0.0)
        return Ids(transformers.DistilBertForSequenceClassification(config))
    config = transformers.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, num_hidden_layers=2,
                                     num_attention_heads=HEADS, hidden_size=WIDTH, intermediate_size=32, num_labels=CLASSES,
                                     attention_probs_dropout_prob=0.0)
    return Ids(transformers.BertForSequenceClassification(config))


NETWORKS = {
    "classifier": Classifier,
    "first_token": lambda: Classifier(takes_first=True),
    "decoder": Decoder,
    "decoder_masked": lambda: Decoder(masks=True),
    "decoder_untied": lambda: Decoder(tied=False),
    "decoder_apart": lambda: Attention(is_causal=True),
    "decoder_grouped": lambda: Attention(2, is_causal=True, enable_gqa=True),
    "decoder_scaled": lambda: Attention(mask="added", scale=0.3),
    "decoder_boolean": lambda: Attention(mask="boolean", has_weight=False),
    "decoder_grouped_rows": lambda: Attention(2, keeps_rows=True),
    "text_cnn": TextCnn,
    "distilbert": lambda: published("distilbert"),
    "bert": lambda: published("bert"),
}


def made(name):
    """Layers that differ from each other, or exporters would merge them."""
    torch.manual_seed(len(name))
    model = NETWORKS[name]()
    for parameter in model.parameters():
        parameter.data += torch.empty_like(parameter).uniform_(-0.1, 0.1)
    return model


def export(model, x, path, options):
    if options["dynamo"]:
        torch.onnx.export(model, (x,), path, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False, external_data=False,
                          **options)
    else:
        torch.onnx.export(model, (x,), path, input_names=["input"], dynamic_axes={"input": {0: "batch"}}, **options)


def write_network(folder, name, kinds):
    model = made(name)
    x = torch.randint(VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        logits = copy.deepcopy(model).eval()(x).numpy()
    for kind in kinds:
        options = EXPORTS[kind]
        path = str(folder / f"{name}_{kind}.onnx")
        export(copy.deepcopy(model).train(kind == "train"), x, path, options)
        if kind != "train":  # onnxruntime would draw Dropout
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            assert numpy.abs(found - logits).max() < 1e-5 * numpy.abs(logits).max()
    numpy.savez(folder / f"{name}.npz", input=x.numpy(), logits=logits)


def write_trace(folder, name):
    model = made(name).double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
        if isinstance(module, torch.nn.Embedding):  # no ONNX file states it
            module.padding_idx = None
    batches = torch.randint(VOCABULARY, (STEPS, BATCH, LENGTH))
    shape = (STEPS, BATCH, LENGTH) if name.startswith("decoder") else (STEPS, BATCH)
    labels = torch.randint(CLASSES, shape)
    kind = "set23_plain" if isinstance(model, Attention) else "train"
    export(copy.deepcopy(model), batches[0], str(folder / f"trace_{name}.onnx"), EXPORTS[kind])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for x, y in zip(batches, labels):
        optimizer.zero_grad()
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numpy.savez(folder / f"trace_{name}.npz", batches=batches.numpy(), labels=labels.numpy(), losses=numpy.array(losses),
                rate=numpy.array([RATE]))


def main(folder, name, kinds):
    warnings.filterwarnings("ignore")
    if name.startswith("trace_"):
        write_trace(folder, name[len("trace_"):])
    else:
        write_network(folder, name, kinds)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or [kind for kind in EXPORTS if kind != "set23_plain"])
