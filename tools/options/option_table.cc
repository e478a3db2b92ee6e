// The table of options and the search for names in it.
#include "tools/options/option_table.h"

#include <algorithm>

#include "tools/options/optimizer_options.h"

namespace tools {
namespace {

using enum OptionSpec::Type;
using enum OptionSpec::Agreement;

// clang-format off: one option a line
constexpr OptionSpec kTrainOptions[] = {
    {"model", kString, "", "NAME", "run",
     "mlp, convnet, resnet18, resnet34, resnet50, resnet101, resnet152, resnet18-cifar, "
     "resnet50-cifar, resnet20-cifar, resnet56-cifar, pyramidnet110, mingpt, gpt-nano, gpt-mini, "
     "gpt2, or a layer list FILE.toml",
     kEqual},
    {"dropout", kReal, "0", "P", "run",
     "text models: dropout of embeddings, attention and residual branches (minGPT uses 0.1)",
     kEqual},
    {"dataset", kChoice, "",
     "mnist|fashion-mnist|cifar10|text|tinyshakespeare|tokens|csv|images|glyphs|synthetic", "run",
     "data set to train on", kEqual},
    {"data-dir", kString, "", "DIR", "run", "folder with the data set's files (default: data/NAME)",
     kFree},
    {"stage", kString, "", "DIR", "run",
     "copy the data set to this folder once per host and read the copy, e.g. a local disk", kFree},
    {"epochs", kInteger, "1", "N", "run", "passes over the training samples", kEqual},
    {"steps", kInteger, "", "N", "run", "stop after N steps in all, instead of --epochs", kEqual},
    {"limit", kInteger, "0", "N", "run",
     "use only N training samples, of each class its share; text, tokens: the first N windows (0: "
     "all)",
     kEqual},
    {"context", kInteger, "64", "N", "run", "text, tokens: sequence length of a sample", kEqual},
    {"text-stride", kInteger, "0", "N", "run",
     "text, tokens: distance between the starts of training samples (0: the context)", kEqual},
    {"vocabulary-size", kInteger, "0", "N", "run",
     "tokens: number of token ids (0: the highest one + 1)", kEqual},
    {"token-bits", kChoice, "auto", "auto|16|32", "run",
     "tokens: width of an id in files without a header", kEqual},
    {"image-size", kInteger, "224", "N", "run",
     "images: side in pixels to which images are scaled and cropped", kEqual},
    {"image-cache-mb", kInteger, "1024", "MB", "run",
     "images: cache decoded images if the training (or test) set fits into this size", kFree},
    {"annotations", kString, "", "FILE.csv", "run",
     "csv: the file (default: the only *.csv in --data-dir)", kFree},
    {"label-column", kString, "", "NAME", "run",
     "csv: label column, by name or number from 1 (default: the last)", kEqual},
    {"task", kChoice, "classification", "classification|regression", "run",
     "csv: whether the label column has classes, or numbers that are to be predicted", kEqual},
    {"loss", kChoice, "mse", "mse|mae", "run",
     "--task regression: the mean of the squared or of the absolute error, of standardised numbers",
     kEqual},
    {"csv-header", kChoice, "auto", "auto|yes|no", "run",
     "csv: whether the first row holds column names", kEqual},
    {"columns", kString, "", "A,B", "run",
     "csv: use only these columns, by name or number from 1, besides the label (default: all)",
     kEqual},
    {"ignore-columns", kString, "", "A,B", "run", "csv: leave out these columns", kEqual},
    {"separator", kString, "auto", "auto|tab|space|CHAR", "run",
     "csv: what separates fields (auto: , or ; or a tab or |, whichever fits)", kEqual},
    {"csv-decimal", kChoice, "auto", "auto|point|comma", "run",
     "csv: what separates a number's decimals (auto: by the cells)", kEqual},
    {"csv-missing", kString, "auto", "auto|empty|A,B", "run",
     "csv: which cells are missing values, besides empty ones", kEqual},
    {"test-share", kReal, "0.2", "F", "run", "csv: fraction of each class's rows used for testing",
     kEqual},
    {"synthetic-shape", kString, "28x28x1", "HxWxC|N", "run",
     "sample shape of the synthetic data set; one number: texts of so many tokens", kEqual},
    {"synthetic-size", kInteger, "10000", "N", "run", "number of samples in the synthetic data set",
     kEqual},
    {"synthetic-classes", kInteger, "10", "N", "run",
     "number of classes in the synthetic data set, or size of the vocabulary", kEqual},

    {"device", kString, "auto", "auto|cpu|cuda|cuda:N", "compute",
     "where to compute; cuda: the GPU with this process's local rank as index; auto: cuda if there "
     "is a GPU, else cpu",
     kFree},
    {"gpu-devices", kDevices, "", "LIST", "compute",
     "CUDA devices of this process, one replica on each: '0 1', '0,1', '0-3' or none (default: "
     "one)",
     kFree},
    {"devices", kString, "", "LIST", "compute",
     "replicas in this process, one thread each: cpu:0,cpu:1 (default: one)", kEqual},
    {"threads", kInteger, "0", "N", "compute",
     "threads per rank (0: the allowed cores, divided among the ranks of the host)", kFree},
    {"bind", kChoice, "none", "none|core|numa", "compute",
     "bind a host's ranks to CPUs of their own; core: each thread to a core, numa: all threads of "
     "a rank to a NUMA node",
     kEqual},
    {"dtype", kChoice, "f32", "f32|f64", "compute",
     "floating-point type; f64 is for comparisons and gradient checks", kEqual},
    {"amp", kChoice, "off", "off|tf32|bf16|O1|O2", "compute",
     "lower precision on a CUDA device. tf32: products in TF32; O1: products in f16; bf16, O2: "
     "activations and weights stored as bf16, f16 (master weights stay f32). On CPUs with "
     "AVX512_BF16, bf16: operands of products rounded to bf16, all else in f32",
     kEqual},
    {"conv", kChoice, "auto", "auto|direct", "compute",
     "3 x 3 and 5 x 5 convolutions on the CPU. auto: by Winograd's method at shapes where it is "
     "faster; direct: as plain sums",
     kEqual},
    {"loss-scale", kString, "", "dynamic|S", "compute",
     "multiply the loss by S and divide the update by it; dynamic: adjust S to avoid overflow "
     "(default: dynamic for O1 and O2)",
     kEqual},
    {"cuda-graph", kChoice, "auto", "auto|off", "compute",
     "auto: launch a training step as one captured CUDA graph if possible", kFree},
    {"sync-bn", kFlag, "false", "", "compute",
     "compute BatchNorm statistics over the samples of all ranks, not per rank", kEqual},
    {"deterministic", kFlag, "false", "", "compute",
     "same bits for any --threads, not only from run to run", kEqual},
    {"buffers", kChoice, "local", "local|rank0|average", "compute",
     "BatchNorm running statistics at epoch ends and in snapshots: each rank's own, rank 0's, or "
     "averaged",
     kEqual},

    {"backend", kString, "auto", "NAME", "group",
     "communication: auto, a backend listed by `engine env`, checked:A,B or a plug-in's path",
     kEqual},
    {"local-stage", kChoice, "auto", "auto|shm|off", "group",
     "reduce over shared memory among the ranks of a host first (auto: if --backend is auto)",
     kEqual},
    {"streams", kInteger, "1", "N", "group",
     "connections between two ranks, for backends that stripe", kEqual},
    {"init-method", kString, "env://", "URL", "group",
     "rendezvous: env://, tcp://HOST:PORT or file:///PATH", kFree},
    {"iface", kString, "", "IF", "group",
     "network interface (default: the one that routes to rank 0)", kFree},
    {"port-rule", kChoice, "auto", "auto|idr|jobid|fixed", "group",
     "env:// without MASTER_PORT: how the port is chosen", kFree},
    {"job-id", kString, "", "ID", "group", "name that keeps jobs sharing a host apart", kFree},
    {"rank", kInteger, "", "R", "group", "this process's rank, from 0", kFree},
    {"world-size", kInteger, "", "W", "group", "number of ranks", kFree},
    {"local-rank", kInteger, "", "L", "group", "this process's index on its host", kFree},
    {"spawn", kString, "0", "[N]", "group",
     "start N ranks on this host; without N, one for each GPU, or for each core if there is none",
     kFree},
    {"elastic", kString, "", "[MIN:MAX]", "group",
     "ranks may come and go while the job runs, as long as MIN live (with --spawn N: 1:N)", kEqual},
    {"elastic-batch", kChoice, "keep", "keep|scale", "group",
     "keep: the global batch is that of MAX ranks, however many there are; scale: it shrinks and "
     "grows with the ranks, and the learning rate with it",
     kEqual},
    {"rdzv-timeout", kReal, "300", "S", "group", "seconds to wait until all ranks have joined",
     kFree},
    {"timeout", kReal, "600", "S", "group", "seconds that a collective may take", kFree},
    {"heartbeat", kReal, "1", "S", "group",
     "seconds between heartbeats; a rank that misses three is dead", kFree},
    {"stall-after", kReal, "10", "S", "group",
     "say who waits for whom when a collective takes longer than this many seconds; 0: never",
     kFree},
    {"stall-abort", kFlag, "false", "", "group",
     "end the job when a collective takes longer than --stall-after", kFree},

    {"sync", kChoice, "grad", "grad|params|post-local|slowmo|diloco|none", "sync",
     "what is averaged: gradients every step, parameters every K steps (post-local, slowmo and "
     "diloco are variants), or nothing",
     kEqual},
    {"sync-every", kInteger, "1", "K", "sync", "steps between two averagings of parameters",
     kEqual},
    {"sync-warmup", kInteger, "0", "W", "sync",
     "average every step during the first W steps: parameters with --sync params, else gradients",
     kEqual},
    {"sync-schedule", kString, "", "S:K,S:K,...", "sync",
     "from step S on average every K steps; replaces --sync-every and --sync-warmup", kEqual},
    {"sync-island", kChoice, "rank", "rank|host", "sync",
     "host: the ranks of a host average gradients every step, and hosts average parameters every K "
     "steps",
     kEqual},
    {"average-state", kChoice, "none", "none|momentum|all", "sync",
     "optimizer state to average along with the parameters", kEqual},
    {"average-buffers", kFlag, "false", "", "sync",
     "average BatchNorm running statistics along with the parameters", kEqual},
    {"outer-lr", kReal, "0.7", "F", "sync", "learning rate of diloco's outer optimizer", kEqual},
    {"outer-momentum", kReal, "0.9", "F", "sync", "momentum of diloco's outer optimizer", kEqual},
    {"outer-nesterov", kFlag, "true", "", "sync", "Nesterov momentum for diloco's outer optimizer",
     kEqual},
    {"slowmo-alpha", kReal, "1", "F", "sync", "slow learning rate of slowmo", kEqual},
    {"slowmo-beta", kReal, "0.5", "F", "sync", "slow momentum of slowmo", kEqual},
    {"compress", kChoice, "none", "none|bf16|topk|powersgd", "sync",
     "compress gradients, with error feedback", kEqual},
    {"topk-ratio", kReal, "0.01", "F", "sync", "topk: fraction of the gradient's elements to send",
     kEqual},
    {"powersgd-rank", kInteger, "4", "R", "sync", "powersgd: rank of the factors", kEqual},
    {"bucket-cap-mb", kReal, "25", "MB", "sync", "size of a gradient bucket", kEqual},
    {"delay-allreduce", kFlag, "false", "", "sync",
     "average after the whole backward pass, not during it", kEqual},
    {"shard-optimizer", kFlag, "false", "", "sync",
     "each rank updates its share of the parameters and has the optimizer's state for that share "
     "alone",
     kEqual},
    {"reduction", kChoice, "mean", "mean|sum", "sync",
     "differentiate the mean or the sum of the losses of a step's samples", kEqual},
    {"reduction-order", kChoice, "fast", "fast|canonical", "sync",
     "canonical: same bits for any number of ranks, any backend and any --threads", kEqual},
    {"reduction-shards", kInteger, "8", "S", "sync",
     "canonical: number of shards of a batch, a power of two; at most as many ranks", kEqual},
    {"verify-every", kInteger, "", "K", "sync",
     "compare all replicas' tensors every K steps (default: never)", kEqual},
    {"on-desync", kChoice, "abort", "abort|warn|repair", "sync",
     "if replicas differ: exit with 76, warn and continue, or overwrite the minority with the "
     "majority's tensors",
     kEqual},

    {"batch-size", kInteger, "128", "B", "batch", "global batch: samples per step over all ranks",
     kEqual},
    {"batch-size-per-device", kInteger, "", "B", "batch",
     "samples per device and micro-batch; replaces --batch-size", kEqual},
    {"grad-accum", kInteger, "1", "K", "batch",
     "micro-batches per device and step whose gradients are accumulated", kEqual},
    {"uneven", kChoice, "join", "join|drop|pad", "batch",
     "if samples don't divide evenly: join = use each once; drop = skip the incomplete step; pad = "
     "repeat some",
     kEqual},
    {"shard", kChoice, "contiguous", "contiguous|strided|file", "batch",
     "a rank's samples: a contiguous slice of each step, every W-th sample of it, or the same part "
     "of the data set all the time",
     kEqual},
    {"normalize", kChoice, "auto", "auto|unit|standard", "batch",
     "unit: x/255; standard: then per-channel mean and standard deviation; auto: unit for "
     "grayscale, else standard",
     kEqual},
    {"augment", kString, "", "LIST", "batch",
     "random augmentation of training images: any of resized-crop,crop,flip,cutout (default: none)",
     kEqual},
    {"crop-padding", kInteger, "4", "N", "batch", "--augment crop: largest shift in pixels",
     kEqual},
    {"cutout-size", kInteger, "16", "N", "batch", "--augment cutout: side of the square", kEqual},
    {"shuffle", kFlag, "true", "", "batch", "new sample order every epoch", kEqual},
    {"sampler", kChoice, "shuffle", "shuffle|stratified", "batch",
     "order of an epoch: a random permutation, or one that mixes the classes evenly", kEqual},
    {"check-sampler", kFlag, "false", "", "batch",
     "check at startup that the ranks' shares of an epoch have no gaps or overlaps", kEqual},
    {"seed", kInteger, "0", "S", "batch",
     "seed of initial weights, sample order, augmentation and dropout", kEqual},
    {"workers", kInteger, "1", "N", "batch",
     "threads that prepare batches (0: the training thread)", kFree},
    {"prefetch", kInteger, "2", "K", "batch", "batches prepared ahead", kFree},
    {"pin-memory", kFlag, "true", "", "batch",
     "prepare batches in pinned host memory, for asynchronous copies to a CUDA device", kFree},
    {"non-blocking", kFlag, "true", "", "batch",
     "copy the next batch to a CUDA device while it computes", kFree},

    {"lr-scale", kChoice, "none", "none|linear|sqrt", "optimizer",
     "multiply the learning rate by the number of ranks or its square root", kEqual},
    {"lr-schedule", kChoice, "constant", "constant|step|cosine", "optimizer",
     "learning rate over time", kEqual},
    {"lr-warmup-steps", kInteger, "0", "N", "optimizer",
     "increase the learning rate linearly during the first N steps", kEqual},
    {"lr-step-epochs", kList, "", "E,E,...", "optimizer",
     "step schedule: epochs at which the rate is multiplied by --lr-gamma", kEqual},
    {"lr-gamma", kReal, "0.1", "F", "optimizer", "step schedule: the factor", kEqual},
    {"lr-min", kReal, "0", "F", "optimizer", "cosine schedule: learning rate at the end", kEqual},
    {"label-smoothing", kReal, "0", "F", "optimizer",
     "fraction of each label spread over all classes, in the training loss only", kEqual},
    {"clip-grad", kReal, "0", "F", "optimizer", "clip the gradient norm to this value (0: off)",
     kEqual},
    {"freeze", kString, "", "GLOB,...", "optimizer",
     "leave the parameters as they are whose names match, e.g. layer1.*; inspect --tensors and "
     "--dry-run show names",
     kEqual},
    {"lr-group", kString, "", "GLOB=Fx,...", "optimizer",
     "multiply the learning rate of the parameters whose names match, e.g. fc.*=10x; the first "
     "pattern that matches counts",
     kEqual},

    {"save-dir", kString, "", "DIR", "state",
     "the run's folder: snapshots, run.json, metrics (auto: a new one, runs/MODEL-DATASET-NNN)",
     kPresence},
    {"overwrite", kFlag, "false", "", "state",
     "if --save-dir holds a run, move it aside instead of refusing to start", kEqual},
    {"save-every", kInterval, "1e", "N[e|s]", "state",
     "save a snapshot every N epochs or steps (0: only at the end)", kEqual},
    {"keep-last", kInteger, "3", "K", "state", "snapshots to keep (0: all)", kFree},
    {"keep-best", kChoice, "auto", "none|auto|loss|accuracy|top5|perplexity|r2", "state",
     "save the state after the best evaluation, and keep it; auto: by accuracy, for text by "
     "perplexity, of a regression by loss, where there is a --save-dir and an evaluation",
     kEqual},
    {"early-stop", kString, "", "N[:DELTA]", "state",
     "end the run after N evaluations in a row that were not better, or by less than DELTA; what "
     "counts is --keep-best's measure",
     kEqual},
    {"ema", kReal, "", "DECAY", "state",
     "keep an exponential moving average of the parameters, e.g. 0.999: after each step, decay "
     "times the average plus the rest times the parameters",
     kEqual},
    {"average-last", kInteger, "", "N", "state",
     "stochastic weight averaging: average the parameters of the ends of the last N epochs, and "
     "recompute BatchNorm's running statistics for them",
     kEqual},
    {"save-rank-models", kFlag, "false", "", "state",
     "every rank also saves its own final model, for engine verify", kEqual},
    {"save-async", kFlag, "false", "", "state",
     "write snapshots in the background (needs memory for a copy of the state)", kEqual},
    {"resume", kString, "none", "auto|PATH|none", "state",
     "continue a run from its folder, or from one snapshot; auto: the run in --save-dir, if any",
     kEqual},
    {"allow-change", kString, "", "NAME,...", "state",
     "with --resume: options (or data) that may differ from the run's although they make it "
     "another experiment",
     kEqual},
    {"init-from", kString, "", "FILE", "state",
     "start from the weights of a run's folder or of a .ckpt, .safetensors, .npz or .pth file",
     kEqual},
    {"allow-mismatch", kString, "", "GLOB,...", "state",
     "with --init-from: weights whose names match may be missing there, left over, or of another "
     "shape, and are then left out, e.g. fc.*",
     kEqual},
    {"init-coding", kChoice, "all", "all|inputs|none", "state",
     "with --init-from: what stays coded as the snapshot states", kEqual},
    {"map-location", kString, "auto", "auto|cpu|SPEC", "state",
     "device for arrays of a snapshot: a device or cuda:0=cuda:1,...", kFree},

    {"eval-every", kInterval, "1e", "N[e|s]", "report",
     "evaluate every N epochs or steps, and at the end (0: never)", kEqual},
    {"log-every", kString, "auto", "auto|N", "report",
     "report every N steps of the run (0: never; auto: often enough for a curve)", kEqual},
    {"on-nonfinite", kChoice, "abort", "abort|skip|continue", "report",
     "if the loss, the gradient's norm or a parameter is NaN or infinite: exit with 79 and save "
     "nothing more, skip that step's update, or warn and continue",
     kEqual},
    {"flight-dir", kString, "", "DIR", "report",
     "where a failing rank writes its flight record, the last collectives (default: --save-dir, "
     "else the temporary folder)",
     kFree},
    {"metrics", kString, "", "F.jsonl", "report", "write metrics as JSON lines", kFree},
    {"log-gpu", kInteger, "0", "N", "report",
     "every N steps, write utilization, memory and power of the GPUs on rank 0's host to --metrics "
     "(0: never)",
     kFree},
    {"tensorboard", kFlag, "false", "", "report",
     "write event files for TensorBoard, to --save-dir/tensorboard", kFree},
    {"tensorboard-dir", kString, "", "DIR", "report", "write event files for TensorBoard there",
     kFree},
    {"histograms", kInteger, "0", "N", "report",
     "every N steps, write histograms of parameters and gradients for TensorBoard (0: never)",
     kFree},
    {"tensorboard-samples", kInteger, "0", "N", "report",
     "with each evaluation, write N test samples and what the model says of them for TensorBoard "
     "(0: none)",
     kFree},
    {"prometheus", kString, "", "[ADDR:]PORT", "report",
     "serve metrics for Prometheus at http://ADDR:PORT/metrics on rank 0's host (default of ADDR: "
     "127.0.0.1)",
     kFree},
    {"trace", kString, "", "F.json[.gz]", "report",
     "write what every rank did and when, for https://ui.perfetto.dev", kPresence},
    {"trace-steps", kString, "", "A:B", "report",
     "--trace: only from step A to step B, counted from 1 (default: all, of which the latest are "
     "kept)",
     kEqual},
    {"progress", kChoice, "auto", "auto|rich|never", "report",
     "progress bar on a terminal; rich: with a curve of the loss", kFree},
    {"quiet", kFlag, "false", "", "report",
     "print warnings and errors only; logs have the other lines, too", kFree},
    {"verbose", kFlag, "false", "", "report",
     "print with each report where the time of a step went", kFree},
    {"log-file", kString, "", "FILE", "report", "append the lines printed to this file, too",
     kFree},
    {"log-format", kChoice, "text", "text|json", "report",
     "json: each line, on the console and in --log-file, as a JSON object", kFree},
    {"log-ranks", kString, "0", "all|LIST", "report",
     "ranks that print their lines, as 0,2 (warnings: all ranks)", kFree},

    {"preempt-signal", kString, "USR1", "LIST", "preempt",
     "preemption signals, e.g. USR1,TERM: finish the step, save, exit with 75", kEqual},
    {"requeue", kFlag, "false", "", "preempt", "after preemption, requeue the SLURM job", kEqual},
};
// clang-format on

// With the options of optimizers before the others of their group.
std::vector<OptionSpec> whole_table() {
  std::vector<OptionSpec> table(std::begin(kTrainOptions), std::end(kTrainOptions));
  const std::vector<OptionSpec> rows = optimizer_option_rows();
  const auto group = std::ranges::find_if(
      table, [](const OptionSpec& o) { return std::string_view(o.group) == "optimizer"; });
  table.insert(group, rows.begin(), rows.end());
  return table;
}

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

}  // namespace

std::span<const OptionSpec> train_options() {
  static const std::vector<OptionSpec> table = whole_table();
  return table;
}

const OptionSpec* find_option(std::string_view name) {
  const std::string wanted = with_dashes(name);
  for (const OptionSpec& option : train_options())
    if (wanted == option.name) return &option;
  return nullptr;
}

Precedence precedence_of(const ConfigValue& value) {
  if (value.source.find(':') != std::string::npos)
    return Precedence::kFile;  // "PATH:LINE"; the others have no colon
  if (value.source.starts_with("--")) return Precedence::kCommandLine;
  return value.source.starts_with("ENGINE_") ? Precedence::kEnvironment : Precedence::kDefault;
}

}  // namespace tools
