"""Writes small text models of the library transformers, with what PyTorch computes of them.

Usage: published_models.py write FOLDER NAME...   one of CASES: FOLDER/NAME with config.json and model.safetensors, or
                                                  shards, and FOLDER/NAME.npz: token ids, logits and losses
       published_models.py read [FOLDER NPZ]...   loads the model of each FOLDER, fails if transformers finds missing or
                                                  unexpected keys, and compares its logits with those of NPZ
       published_models.py defaults              prints a line for each family: what its class has for missing settings
       published_models.py tokenize FOLDER TEXT   prints the end of texts, the longest text and the ids of TEXT, as the
                                                  AutoTokenizer of FOLDER has them
The committed files data/golden_* are those of `write`: golden_gpt2.json is golden_gpt2/config.json, golden_gpt2.safetensors
is its model.safetensors. In the .npz: `tokens` and `logits` of a batch; `batches`, `labels`, `losses`, of 20 steps of AdamW
in float64. PyTorch's numbers are those of
float64 throughout: transformers computes rotations and root mean squares in float32 even then, which is replaced here.
Exit code 77 where torch, transformers or numpy are missing.
"""
import pathlib
import sys

try:
    import numpy
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
except ImportError as error:
    print(error)
    sys.exit(77)

STEPS, LEARNING_RATE, DECAY = 20, 0.003, 0.05


def gpt2(width=8, **more):
    return GPT2Config(vocab_size=13, n_positions=9, n_embd=width, n_layer=2, n_head=2, **more)


def llama(kind=LlamaConfig, **more):
    sizes = dict(vocab_size=13, hidden_size=8, intermediate_size=10, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=16)
    return kind(**{**sizes, **more})


# A configuration, and the arguments of save_pretrained. Golden ones are small.
CASES = {
    "golden_gpt2": (gpt2(), {}),
    "golden_llama": (llama(), {}),
    "golden_qwen2": (llama(Qwen2Config, tie_word_embeddings=True, rope_theta=1e6), {}),
    "golden_qwen3": (llama(Qwen3Config, head_dim=6), {}),
    "golden_mistral": (llama(MistralConfig, num_key_value_heads=1, sliding_window=None), {}),
    "gpt2_inner_shards": (gpt2(24, n_inner=20, activation_function="gelu", layer_norm_epsilon=1e-3),
                          {"max_shard_size": "4KB"}),
    "gpt2_untied": (gpt2(24, tie_word_embeddings=False), {}),
    "smollm": (llama(num_attention_heads=6, num_key_value_heads=2, hidden_size=24, tie_word_embeddings=True,
                     rms_norm_eps=1e-5, rope_theta=1e5), {}),
    "llama_biases": (llama(hidden_size=24, attention_bias=True, mlp_bias=True), {"max_shard_size": "3KB"}),
    "llama_scaled": (llama(hidden_size=32, rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                                         "high_freq_factor": 3.0,
                                                         "original_max_position_embeddings": 12}), {}),
    "qwen2_wide": (llama(Qwen2Config, hidden_size=32, num_key_value_heads=4), {}),
    "qwen3_tied": (llama(Qwen3Config, hidden_size=16, head_dim=8, tie_word_embeddings=True), {}),
    "mistral_heads": (llama(MistralConfig, hidden_size=20, head_dim=10, sliding_window=16), {}),
}


def draw(model):
    """Weights far from the initial ones: norms around 1, biases that are not 0."""
    for name, value in model.named_parameters():
        with torch.no_grad():
            value.normal_(0, 0.3)
            if value.dim() == 1 and name.endswith("weight"):
                value.add_(1)


def scaled(frequencies, scaling):
    """Llama 3's: slow rotations are slower by the factor, fast ones as they are, and a ramp between them."""
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * torch.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (share + (1 - share) / scaling["factor"])


class ExactNorm(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class ExactRotation(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]  # newer versions
        self.frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        scaling = getattr(config, "rope_scaling", None) or {}
        if scaling.get("rope_type", "default") != "default":
            self.frequencies = scaled(self.frequencies, scaling)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


def exact(model):
    """The same model in float64, also where transformers falls back to float32."""
    model = model.double()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(parent, name, ExactNorm(child))
            elif type(child).__name__.endswith("RotaryEmbedding"):
                setattr(parent, name, ExactRotation(model.config))
    return model.eval()  # without dropout


def random_tokens(*shape):
    return torch.randint(0, 13, shape)


def write(folder, name):
    torch.manual_seed(sorted(CASES).index(name))
    config, saving = CASES[name]
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float()
    draw(model)
    model.tie_weights()
    model.save_pretrained(folder / name, **saving)
    (folder / name / "generation_config.json").unlink(missing_ok=True)
    model = exact(model)
    tokens = random_tokens(2, 9)
    arrays = {"tokens": tokens.numpy(), "logits": model(tokens).logits.detach().numpy()}
    batches, labels, losses = random_tokens(STEPS, 2, 9), random_tokens(STEPS, 2, 9), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=DECAY)
    for batch, wanted in zip(batches, labels):
        optimizer.zero_grad()
        logits = model(batch).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    arrays |= {"batches": batches.numpy(), "labels": labels.numpy(), "losses": numpy.array(losses)}
    numpy.savez_compressed(folder / (name + ".npz"), **arrays)


def read(folder, stored):
    model, found = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, attn_implementation="sdpa")
    wrong = {kind: keys for kind, keys in found.items() if keys}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    expected = numpy.load(stored)
    logits = model(torch.from_numpy(expected["tokens"])).logits.detach().numpy()
    difference = abs(logits - expected["logits"]).max() / abs(logits).max()
    print(f"{folder}: largest difference {difference:.2e} of the largest logit")
    if not difference <= 1e-5:
        sys.exit(f"{folder}: expected at most 1e-5")


def defaults():
    for kind in (GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config):
        c = kind()
        heads, width, ends = c.num_attention_heads, c.hidden_size, c.eos_token_id
        rotation = getattr(c, "rope_parameters", None) or {}  # newer versions
        theta = rotation.get("rope_theta") or getattr(c, "rope_theta", 10000)
        print(c.vocab_size, width, getattr(c, "intermediate_size", None) or 4 * width, c.num_hidden_layers, heads,
              getattr(c, "num_key_value_heads", None) or heads, getattr(c, "head_dim", None) or width // heads,
              c.max_position_embeddings, getattr(c, "sliding_window", None) or 0, -1 if ends is None else ends,
              repr(getattr(c, "rms_norm_eps", None) or c.layer_norm_epsilon), f"{theta:g}",
              "tied" if c.tie_word_embeddings else "apart", c.model_type)


def tokenize(folder, text):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    print(tokenizer.eos_token, tokenizer.model_max_length, *tokenizer.encode(text, add_special_tokens=False))


def main():
    if sys.argv[1] == "tokenize":
        tokenize(*sys.argv[2:])
    elif sys.argv[1] == "defaults":
        defaults()
    elif sys.argv[1] == "read":
        for folder, stored in zip(sys.argv[2::2], sys.argv[3::2]):
            read(folder, stored)
    else:
        for name in sys.argv[3:]:
            write(pathlib.Path(sys.argv[2]), name)


main()
