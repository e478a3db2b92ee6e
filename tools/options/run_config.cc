// From texts to a RunConfig: checks types, then combinations of options, then ranges.
#include "tools/options/run_config.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "tools/options/compute_options.h"
#include "tools/options/optimizer_options.h"
#include "tools/options/option_rules.h"
#include "tools/options/sync_options.h"

namespace tools {
namespace {

constexpr int kMostRanks = 65536;
constexpr double kLongestWait = 2'000'000;  // seconds; in milliseconds it still is an int

// "--save-dir $DIR" in a script where DIR is not set: silence would lose the run. Other options are
// unset in this way.
void refuse_empty(std::string_view name, const ConfigValue& value) {
  if (!value.value.empty() || precedence_of(value) != Precedence::kCommandLine) return;
  for (const char* path : {"save-dir", "init-from", "metrics", "resume"})
    if (name == path) throw io::ConfigError(value.source + " is empty");
}

// "--lr $LR" where LR is not set.
bool is_said_to_be_a_number(const OptionSpec& option, const ConfigValue& value) {
  const bool number =
      option.type == OptionSpec::Type::kInteger || option.type == OptionSpec::Type::kReal;
  return number && precedence_of(value) == Precedence::kCommandLine;
}

// Every option with its default where nothing was said, each in its canonical spelling.
ConfigValues complete(const ConfigValues& values) {
  ConfigValues result = values;
  apply_defaults(result);
  for (auto& [name, value] : result) {
    const OptionSpec* option = find_option(name);
    if (option == nullptr || name != option->name)
      throw io::ConfigError("unknown option '" + name + "' (from " + value.source + ")");
    refuse_empty(name, value);
    const auto text = canonical_text(*option, value.value);
    if (!text) {
      const bool choice = option->type == OptionSpec::Type::kChoice;
      refuse_value(
          name, value, expected_text(*option),
          choice ? base::did_you_mean(value.value, base::split_text(option->metavar, '|')) : "");
    }
    if (text->empty() && (*option->default_value != '\0' || is_said_to_be_a_number(*option, value)))
      refuse_value(
          name, value,
          option->type == OptionSpec::Type::kString ? option->metavar : expected_text(*option));
    value.value = *text;
  }
  return result;
}

void read_run(const ValueReader& read, RunConfig& config) {
  config.model = read.text("model");
  config.dataset = read.text("dataset");
  config.data_dir = read.text("data-dir");
  config.stage = read.text("stage");
  if (config.model.empty())
    throw io::ConfigError("no model: give --model " + std::string(find_option("model")->help));
  if (config.dataset.empty())
    throw io::ConfigError("no data set: give --dataset, " + expected_text(*find_option("dataset")));
  config.epochs = read.integer("epochs", 1, 1'000'000, 1);
  config.steps = read.integer("steps", 1, kMostCount, 0);
  config.limit = read.integer("limit", 0, kMostCount, 0);
  config.synthetic_size = read.integer("synthetic-size", 1, 100'000'000, config.synthetic_size);
  config.synthetic_classes =
      read.integer("synthetic-classes", 2, 1'000'000, config.synthetic_classes);
  if (read.text("synthetic-shape").empty()) return;
  const std::vector<std::string> parts = base::split_text(read.text("synthetic-shape"), 'x');
  if (parts.size() == 1) {
    const auto tokens = parse_integer(parts[0]);
    if (tokens && *tokens >= 1 && *tokens <= 1'000'000) {
      config.synthetic_context = *tokens;
      return;
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const auto size = parts.size() == 3 ? parse_integer(parts[i]) : std::nullopt;
    if (!size || *size < 1 || *size > 16384)
      read.refuse("synthetic-shape",
                  "HEIGHTxWIDTHxCHANNELS, each from 1 to 16384, as 28x28x1, or TOKENS, as 64");
    config.synthetic_shape[i] = *size;
  }
}

void read_tables_and_texts(const ValueReader& read, RunConfig& config) {
  config.context = read.integer("context", 1, 1'000'000, config.context);
  config.text_stride = read.integer("text-stride", 0, 1'000'000'000, 0);
  config.vocabulary_size = read.integer("vocabulary-size", 0, 1 << 24, 0);
  config.token_bits = read.text("token-bits") == "16"   ? 16
                      : read.text("token-bits") == "32" ? 32
                                                        : 0;
  config.image_size = read.integer("image-size", 1, 4096, config.image_size);
  config.image_cache_mb = read.integer("image-cache-mb", 0, 1'000'000, config.image_cache_mb);
  config.annotations = read.text("annotations");
  config.label_column = read.text("label-column");
  config.regression = read.text("task") == "regression";
  if (config.regression && config.dataset != "csv")
    read.demand("task", "--dataset csv: only tables have columns of numbers to predict");
  config.loss = read.text("loss");
  config.csv_header = read.text("csv-header").empty() ? "auto" : read.text("csv-header");
  config.columns = read.text("columns");
  config.ignore_columns = read.text("ignore-columns");
  config.separator = read.text("separator").empty() ? "auto" : read.text("separator");
  config.csv_decimal = read.text("csv-decimal").empty() ? "auto" : read.text("csv-decimal");
  config.csv_missing = read.text("csv-missing").empty() ? "auto" : read.text("csv-missing");
  config.test_share =
      read.real("test-share", 0, 0.99, config.test_share, "a number from 0 to 0.99");
}

// "2:4", "4" for 4:4, or "on", which --spawn makes 1:N.
void read_elastic(const ValueReader& read, RunConfig& config) {
  const std::string text = read.text("elastic");
  if (text.empty() || text == "off") return;
  if (text == "on") {
    if (config.spawn == 0)
      read.refuse("elastic", "MIN:MAX, as 2:4, where --spawn does not say MAX");
    config.least_ranks = 1;
    config.most_ranks = config.spawn;
    return;
  }
  const std::vector<std::string> parts = base::split_text(text, ':');
  const auto least = parse_integer(parts.front()), most = parse_integer(parts.back());
  if (parts.size() > 2 || !least || !most || *least < 1 || *most < *least || *most > 1024)
    read.refuse("elastic", "MIN:MAX with 1 <= MIN <= MAX <= 1024, as 2:4");
  if (config.spawn > *most)
    read.refuse("elastic", "a MAX of at least --spawn, which is " + std::to_string(config.spawn));
  config.least_ranks = static_cast<int>(*least);
  config.most_ranks = static_cast<int>(*most);
}

void read_group(const ValueReader& read, RunConfig& config) {
  config.backend = read.text("backend");
  config.local_stage = read.text("local-stage");
  config.streams = read.small("streams", 1, 64, 1);
  config.init_method = read.text("init-method");
  config.interface_name = read.text("iface");
  config.port_rule = read.text("port-rule");
  config.job_id = read.text("job-id");
  config.rank = read.maybe("rank", 0, kMostRanks - 1);
  config.world_size = read.maybe("world-size", 1, kMostRanks);
  config.local_rank = read.maybe("local-rank", 0, kMostRanks - 1);
  config.spawn = read.small("spawn", 0, 1024, 0);
  read_elastic(read, config);
  if (config.most_ranks > 0)
    for (const char* name : {"rank", "world-size"})
      if (!read.text(name).empty())
        read.demand(name, "no --elastic, whose ranks are numbered where they meet: leave it out");
  config.rdzv_timeout_s = read.positive("rdzv-timeout", kLongestWait, config.rdzv_timeout_s);
  config.timeout_s = read.positive("timeout", kLongestWait, config.timeout_s);
  config.heartbeat_s = read.positive("heartbeat", kLongestWait, config.heartbeat_s);
  config.stall_after_s =
      read.real("stall-after", 0, kLongestWait, config.stall_after_s, "0 or a number of seconds");
  config.stall_abort = read.flag("stall-abort");
  if (config.stall_abort && config.stall_after_s == 0)
    read.refuse("stall-after", "above 0, which --stall-abort needs");
  if (config.rank && *config.rank >= *config.world_size)
    read.refuse("rank", "less than --world-size, which is " + std::to_string(*config.world_size));
  if (config.local_rank && config.world_size && *config.local_rank >= *config.world_size)
    read.refuse("local-rank",
                "less than --world-size, which is " + std::to_string(*config.world_size));
}

void read_augmentation(const ValueReader& read, RunConfig& config) {
  const std::vector<std::string> known{"resized-crop", "crop", "flip", "cutout"};
  if (!read.text("augment").empty()) config.augment = base::split_text(read.text("augment"), ',');
  for (const std::string& name : config.augment) {
    const bool unknown = std::ranges::count(known, name) == 0;
    if (!unknown && std::ranges::count(config.augment, name) == 1) continue;
    read.refuse("augment",
                "a list of resized-crop, crop, flip and cutout, each at most once, as crop,flip",
                unknown ? base::did_you_mean(name, known) : "");
  }
  config.crop_padding = read.small("crop-padding", 1, 4096, config.crop_padding);
  config.cutout_size = read.small("cutout-size", 1, 4096, config.cutout_size);
}

// What follows from the number of ranks cannot hold where that changes.
void check_elastic_batch(const ValueReader& read, RunConfig& config) {
  if (config.most_ranks == 0) return;
  if (config.uneven != "join")
    read.demand("elastic", "--uneven join: drop and pad depend on the number of ranks");
  if (config.shard == "file")
    read.demand("elastic",
                "--shard contiguous or strided: a file's part depends on the number of "
                "ranks");
  config.elastic_batch_scales = read.text("elastic-batch") == "scale";
  if (!config.elastic_batch_scales) return;
  if (config.canonical)
    read.demand("elastic-batch",
                "--reduction-order fast: in canonical order the batch is the same "
                "for any number of ranks");
  if (config.batch_size % config.most_ranks != 0)
    read.refuse("batch-size", "a multiple of the " + std::to_string(config.most_ranks) +
                                  " ranks of --elastic, for --elastic-batch scale");
}

void read_batch(const ValueReader& read, RunConfig& config) {
  config.sum_losses = read.text("reduction") == "sum";
  config.canonical = read.text("reduction-order") == "canonical";
  config.reduction_shards = read.small("reduction-shards", 1, 1024, config.reduction_shards);
  if ((config.reduction_shards & (config.reduction_shards - 1)) != 0)
    read.refuse("reduction-shards", "a power of two");
  if (config.canonical && config.buffers == "average")
    read.demand("reduction-order",
                "--buffers local or rank0: an average depends on the number of ranks");
  config.verify_every = read.integer("verify-every", 1, kMostCount, 0);
  config.on_desync = read.text("on-desync");
  config.batch_size = read.integer("batch-size", 1, 1'000'000'000, 0);
  config.batch_size_per_device = read.integer("batch-size-per-device", 1, 1'000'000'000, 0);
  config.grad_accum = read.integer("grad-accum", 1, 1'000'000, 1);
  config.uneven = read.text("uneven");
  config.shard = read.text("shard");
  check_elastic_batch(read, config);
  config.normalize = read.text("normalize");
  read_augmentation(read, config);
  config.shuffle = read.flag("shuffle");
  config.sampler = read.text("sampler");
  if (config.regression && config.sampler == "stratified")
    read.demand("sampler", "--task classification: numbers have no classes to mix");
  config.check_sampler = read.flag("check-sampler");
  config.seed = static_cast<std::uint64_t>(
      read.integer("seed", 0, std::numeric_limits<std::int64_t>::max(), 0));
  config.workers = read.small("workers", 0, 4096, 1);
  config.prefetch = read.small("prefetch", 1, 1024, 2);
  config.pin_memory = read.flag("pin-memory");
  config.non_blocking = read.flag("non-blocking");
}

// "layer1.*,fc.bias"
std::vector<std::string> read_patterns(const ValueReader& read, const char* name) {
  if (read.text(name).empty()) return {};
  std::vector<std::string> patterns = base::split_text(read.text(name), ',');
  if (std::ranges::count(patterns, "") > 0)
    read.refuse(name, "patterns of names (* and ?) with commas between them, as layer1.*,fc.bias");
  return patterns;
}

// "fc.*=10x,layer4.*=0.5x"
void read_rate_groups(const ValueReader& read, RunConfig& config) {
  for (const std::string& group : read_patterns(read, "lr-group")) {
    const std::size_t equals = group.rfind('=');
    std::string factor = equals == std::string::npos ? "" : group.substr(equals + 1);
    if (factor.ends_with('x')) factor.pop_back();
    const auto value = parse_real(factor);
    if (equals == 0 || !value || *value <= 0 || *value > 1e6)
      read.refuse("lr-group",
                  "patterns of names with a factor above 0, as fc.*=10x; what is not to be trained "
                  "at all is --freeze");
    config.rate_groups.emplace_back(group.substr(0, equals), *value);
  }
}

void read_frozen(const ValueReader& read, RunConfig& config) {
  config.freeze = read_patterns(read, "freeze");
  read_rate_groups(read, config);
  if (config.freeze.empty() && config.rate_groups.empty()) return;
  if (!engine::find_optimizer(config.optimizer)->by_ranges)
    for (const char* name : {"freeze", "lr-group"})
      if (!read.text(name).empty())
        read.demand(name, "another --optimizer than " + config.optimizer +
                              ", which updates matrices as a whole: sgd, adamw or lion");
  if (!config.freeze.empty() && (config.buffers == "average" || config.average_buffers))
    read.demand("freeze",
                "--buffers local or rank0 and no --average-buffers: means of running statistics "
                "would not leave those of frozen layers as they are");
}

void read_update(const ValueReader& read, RunConfig& config) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  const double below_one = std::nextafter(1.0, 0.0);
  read_optimizer(read, config);
  read_frozen(read, config);
  config.lr_scale = read.text("lr-scale");
  config.lr_schedule = read.text("lr-schedule");
  config.lr_warmup_steps = read.integer("lr-warmup-steps", 0, kMostCount, 0);
  config.lr_step_epochs = *parse_integer_list(read.text("lr-step-epochs"));
  config.lr_gamma = read.positive("lr-gamma", 1e6, config.lr_gamma);
  config.lr_min = read.real("lr-min", 0, config.lr, 0, "a number from 0 to --lr");
  config.clip_grad = read.real("clip-grad", 0, kLargest, 0, "a number, 0 or above");
  config.label_smoothing =
      read.real("label-smoothing", 0, below_one, 0, "a number from 0 to below 1");
  config.dropout = read.real("dropout", 0, below_one, 0, "a number from 0 to below 1");

  const std::vector<std::int64_t>& epochs = config.lr_step_epochs;
  const bool ascending =
      std::adjacent_find(epochs.begin(), epochs.end(), std::greater_equal<>()) == epochs.end();
  if (!epochs.empty() && (epochs.front() < 1 || !ascending))
    read.refuse("lr-step-epochs", "ascending epochs from 1 (30,60)");
  if (config.lr_schedule == "step" && epochs.empty())
    read.demand("lr-schedule", "--lr-step-epochs (30,60)");
}

void read_allowed_changes(const ValueReader& read, RunConfig& config) {
  const std::string text = read.text("allow-change");
  if (text.empty()) return;
  std::vector<std::string> known{"data"};
  for (const OptionSpec& option : train_options()) known.emplace_back(option.name);
  for (const std::string& name : base::split_text(text, ',')) {
    if (std::ranges::find(known, name) == known.end())
      read.refuse("allow-change", "names of options without the --, as optimizer,data",
                  base::did_you_mean(name, known));
    config.allowed_changes.push_back(name);
  }
}

void read_trace(const ValueReader& read, RunConfig& config) {
  config.trace = read.text("trace");
  if (config.trace.empty()) return;
  if (!config.trace.ends_with(".json") && !config.trace.ends_with(".json.gz"))
    read.refuse("trace", "a file that ends in .json or .json.gz");
  if (config.most_ranks > 0) read.demand("trace", "that ranks stay: one of --elastic has no trace");
  if (read.text("trace-steps").empty()) return;
  const std::vector<std::string> parts = base::split_text(read.text("trace-steps"), ':');
  const auto first = parse_integer(parts.front()), last = parse_integer(parts.back());
  if (parts.size() != 2 || !first || !last || *first < 1 || *last < *first || *last > kMostCount)
    read.refuse("trace-steps", "two steps, counted from 1, as 100:150");
  config.trace_first = *first;
  config.trace_last = *last;
}

void read_views(const ValueReader& read, RunConfig& config) {
  config.tensorboard = read.flag("tensorboard");
  config.tensorboard_dir = read.text("tensorboard-dir");
  if (config.tensorboard && config.tensorboard_dir.empty() && config.save_dir.empty())
    read.demand("tensorboard",
                "--save-dir, or --tensorboard-dir DIR instead: a folder to write to");
  config.histograms = read.integer("histograms", 0, kMostCount, 0);
  if (config.histograms > 0 && !config.tensorboard && config.tensorboard_dir.empty())
    read.demand("histograms", "--tensorboard or --tensorboard-dir DIR: TensorBoard shows them");
  config.tensorboard_samples = read.integer("tensorboard-samples", 0, 1000, 0);
  if (config.tensorboard_samples > 0 && !config.tensorboard && config.tensorboard_dir.empty())
    read.demand("tensorboard-samples",
                "--tensorboard or --tensorboard-dir DIR: TensorBoard shows them");
  read_trace(read, config);
  if (read.text("prometheus").empty()) return;
  config.prometheus = parse_listen_address(read.text("prometheus"));
  if (!config.prometheus)
    read.refuse("prometheus",
                "a port of this host for itself, as 9400, or an IP address and a port, as "
                "0.0.0.0:9400 or [::1]:9400");
}

void read_log(const ValueReader& read, RunConfig& config) {
  config.progress = read.text("progress");
  config.quiet = read.flag("quiet");
  config.verbose = read.flag("verbose");
  if (config.quiet && config.verbose)
    read.demand("quiet", "that --verbose is not given: it asks for more lines");
  config.log_file = read.text("log-file");
  config.log_json = read.text("log-format") == "json";
  if (config.progress == "rich" && (config.quiet || config.log_json))
    read.demand("progress", "a console with lines of text: no --quiet, and --log-format text");
  const std::string& ranks = read.text("log-ranks");
  config.log_all_ranks = ranks == "all";
  if (config.log_all_ranks) return;
  config.log_ranks.clear();
  for (const std::string& rank : base::split_text(ranks, ',')) {
    const auto number = parse_integer(rank);
    if (!number || *number < 0 || *number > 1'000'000)
      read.refuse("log-ranks", "all, or numbers of ranks from 0, as 0,2");
    config.log_ranks.push_back(static_cast<int>(*number));
  }
}

void read_state_and_report(const ValueReader& read, RunConfig& config) {
  config.save_dir = read.text("save-dir");
  config.save_every = read.interval("save-every");
  config.keep_last = read.small("keep-last", 0, 1'000'000, 0);
  config.save_rank_models = read.flag("save-rank-models");
  config.save_async = read.flag("save-async");
  config.resume = read.text("resume");
  config.overwrite = read.flag("overwrite");
  read_allowed_changes(read, config);
  if (!config.allowed_changes.empty() && config.resume == "none")
    read.demand("allow-change", "--resume: it says what may differ from the run that goes on");
  config.init_from = read.text("init-from");
  config.allowed_mismatches = read_patterns(read, "allow-mismatch");
  config.init_coding = read.text("init-coding");
  config.map_location = read.text("map-location");
  config.eval_every = read.interval("eval-every");
  if (const std::string& every = read.text("log-every"); !every.empty() && every != "auto") {
    config.log_every = parse_integer(every);
    if (!config.log_every || *config.log_every < 0 || *config.log_every > kMostCount)
      read.refuse("log-every", "auto, or an integer from 0 to " + std::to_string(kMostCount));
  }
  config.on_nonfinite = read.text("on-nonfinite");
  if (config.on_nonfinite == "skip" && !config.compress.empty() && config.compress != "none")
    read.demand("on-nonfinite",
                "--compress none: what compression keeps back from a step that is "
                "skipped would spoil those after it");
  config.flight_dir = read.text("flight-dir");
  config.metrics = read.text("metrics");
  config.log_gpu = read.integer("log-gpu", 0, kMostCount, 0);
  if (config.log_gpu > 0 && config.metrics.empty() && config.save_dir.empty() &&
      read.text("tensorboard-dir").empty())
    read.demand("log-gpu", "--save-dir or --metrics FILE: samples go to the metrics");
  read_views(read, config);
  read_log(read, config);
  if (config.overwrite && config.resume != "none")
    read.demand("overwrite", "that no --resume is given: a run goes on, or it moves aside");
  if (config.resume == "auto" && config.save_dir.empty())
    read.demand("resume", "--save-dir: that is where auto looks");
  if (config.resume != "auto" && config.resume != "none" && !config.init_from.empty())
    read.demand("init-from", "that no --resume PATH is given: a snapshot brings its own weights");
}

void read_best(const ValueReader& read, RunConfig& config) {
  const std::string& stop = read.text("early-stop");
  if (!stop.empty()) {
    const std::vector<std::string> parts = base::split_text(stop, ':');
    const auto patience = parse_integer(parts[0]);
    const auto delta = parts.size() == 2 ? parse_real(parts[1]) : std::optional(0.0);
    if (parts.size() > 2 || !patience || *patience < 1 || *patience > kMostCount || !delta ||
        *delta < 0)
      read.refuse("early-stop",
                  "a number of evaluations, from 1, and perhaps the least improvement, as 5 or "
                  "5:0.001");
    config.early_stop = *patience;
    config.early_stop_delta = *delta;
    if (config.eval_every.every == 0)
      read.demand("early-stop", "evaluations: --eval-every is 0, which is never");
  }
  config.ema = read.real("ema", std::numeric_limits<double>::min(), std::nextafter(1.0, 0.0), 0,
                         "a number above 0 and below 1, as 0.999");
  config.average_last = read.integer("average-last", 1, 1'000'000, 0);
  config.keep_best = read.text("keep-best");
  if (config.keep_best == "none" || config.keep_best == "auto") return;
  if (config.eval_every.every == 0)
    read.demand("keep-best", "evaluations: --eval-every is 0, which is never");
  if (config.save_dir.empty() && stop.empty())
    read.demand("keep-best", "--save-dir: that is where the best is kept");
}

void read_preempt(const ValueReader& read, RunConfig& config) {
  constexpr std::pair<std::string_view, int> kSignals[] = {
      {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"XCPU", SIGXCPU}, {"TERM", SIGTERM}, {"INT", SIGINT}};
  config.requeue = read.flag("requeue");
  if (read.text("preempt-signal").empty()) return;
  for (const std::string& text : base::split_text(read.text("preempt-signal"), ',')) {
    const std::string name = text.starts_with("SIG") ? text.substr(3) : text;
    const auto found = std::ranges::find(kSignals, name, &std::pair<std::string_view, int>::first);
    if (found == std::end(kSignals))
      read.refuse("preempt-signal", "signals of USR1, USR2, XCPU, TERM and INT, e.g. USR1,TERM");
    config.preempt_signals.push_back(found->second);
  }
}

}  // namespace

RunConfig resolve_run_config(const ConfigValues& values) {
  RunConfig config;
  config.origin = complete(values);
  apply_option_rules(config.origin);
  complete_by_optimizer(config.origin);
  const ValueReader read(config.origin);
  read_run(read, config);
  read_tables_and_texts(read, config);
  read_compute(read, config);
  read_group(read, config);
  read_sync(read, config);
  read_batch(read, config);
  read_update(read, config);
  read_state_and_report(read, config);
  read_best(read, config);
  read_preempt(read, config);
  return config;
}

}  // namespace tools
