// From the text of options to typed values, once.
#include "tools/session/session_options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/optim/loss_scale.h"
#include "tools/run/run_comparison.h"

namespace tools {
namespace {

// The value of `name` in a table of an option's choices; the option table has let no other through.
template <class Value, std::size_t N>
Value chosen(std::string_view name, const std::array<std::pair<const char*, Value>, N>& choices) {
  for (const auto& [key, value] : choices)
    if (name == key) return value;
  throw engine::Error("internal: no choice '" + std::string(name) + "'");
}

std::optional<io::Normalization> normalization_of(const std::string& name) {
  if (name == "unit") return io::Normalization::kUnit;
  if (name == "standard") return io::Normalization::kStandard;
  return std::nullopt;
}

io::Augmentation augmentation_of(const RunConfig& config) {
  const auto wants = [&](const char* name) { return std::ranges::count(config.augment, name) > 0; };
  return {.resized_crop = wants("resized-crop"),
          .crop = wants("crop"),
          .flip = wants("flip"),
          .cutout = wants("cutout"),
          .crop_padding = config.crop_padding,
          .cutout_size = config.cutout_size};
}

io::DatasetOptions set_of(const RunConfig& config) {
  return {.name = config.dataset,
          .directory = config.data_dir.empty() ? "data/" + config.dataset : config.data_dir,
          .seed = config.seed,
          .limit = config.limit,
          .synthetic_shape = config.synthetic_shape,
          .synthetic_context = config.synthetic_context,
          .synthetic_size = config.synthetic_size,
          .synthetic_classes = config.synthetic_classes,
          .context = config.context,
          .text_stride = config.text_stride,
          .vocabulary_size = config.vocabulary_size,
          .token_bits = config.token_bits,
          .image_size = config.image_size,
          .image_cache_bytes = config.image_cache_mb << 20,
          .annotations = config.annotations,
          .label_column = config.label_column,
          .csv_header = config.csv_header,
          .csv_separator = config.separator,
          .csv_decimal = config.csv_decimal,
          .csv_missing = config.csv_missing,
          .columns = config.columns,
          .ignored_columns = config.ignore_columns,
          .test_share = config.test_share,
          .regression = config.regression};
}

io::SamplerOptions sampling_of(const RunConfig& config) {
  return {.global_batch = config.batch_size,
          .seed = config.seed,
          .shuffle = config.shuffle,
          .uneven = config.uneven == "drop"  ? io::Uneven::kDrop
                    : config.uneven == "pad" ? io::Uneven::kPad
                                             : io::Uneven::kJoin,
          .shard = config.shard == "strided" ? io::Shard::kStrided
                   : config.shard == "file"  ? io::Shard::kFile
                                             : io::Shard::kContiguous,
          .parts = config.canonical ? config.reduction_shards : 0};
}

std::optional<engine::OuterOptions> outer_of(const RunConfig& config) {
  if (config.sync == "diloco")
    return engine::OuterOptions{config.outer_lr, config.outer_momentum, config.outer_nesterov,
                                /*over_inner_rate=*/false};
  if (config.sync == "slowmo")
    return engine::OuterOptions{config.slowmo_alpha, config.slowmo_beta, /*nesterov=*/false,
                                /*over_inner_rate=*/true};
  return std::nullopt;
}

// All warm-ups but that of --sync params, which averages parameters.
std::int64_t gradient_steps_of(const RunConfig& config, const AveragingOptions& averaging) {
  if (averaging.method == AveragingOptions::Method::kParameters || !averaging.of_parameters())
    return 0;
  return config.sync_schedule.empty() ? config.sync_warmup : config.sync_schedule.front().from;
}

engine::SyncSchedule schedule_of(const RunConfig& config, const AveragingOptions& averaging) {
  if (!config.sync_schedule.empty()) {
    std::vector<engine::SyncPhase> phases;
    for (const auto& [from, every] : config.sync_schedule) phases.push_back({from, every});
    return engine::SyncSchedule(phases);
  }
  if (averaging.method == AveragingOptions::Method::kParameters)
    return engine::SyncSchedule::constant(config.sync_every, config.sync_warmup);
  return engine::SyncSchedule({{averaging.gradient_steps, config.sync_every}});
}

AveragingOptions averaging_of(const RunConfig& config) {
  using Options = AveragingOptions;
  using Method = Options::Method;
  AveragingOptions averaging;
  averaging.method = chosen<Method, 6>(config.sync, {{{"none", Method::kNone},
                                                      {"grad", Method::kGradients},
                                                      {"params", Method::kParameters},
                                                      {"post-local", Method::kPostLocal},
                                                      {"slowmo", Method::kSlowMo},
                                                      {"diloco", Method::kDiloco}}});
  averaging.name = config.sync;
  averaging.canonical = config.canonical;
  averaging.shards = config.reduction_shards;
  averaging.compression = config.compress == "bf16"       ? Options::Compression::kBf16
                          : config.compress == "topk"     ? Options::Compression::kTopK
                          : config.compress == "powersgd" ? Options::Compression::kPowerSgd
                                                          : Options::Compression::kNone;
  averaging.topk_ratio = config.topk_ratio;
  averaging.powersgd_rank = config.powersgd_rank;
  averaging.buckets = {.bytes = static_cast<std::int64_t>(config.bucket_cap_mb * (1 << 20)),
                       .overlap = !config.delay_allreduce};
  averaging.shard_optimizer = config.shard_optimizer;
  averaging.states = config.average_state == "all"        ? Options::States::kAll
                     : config.average_state == "momentum" ? Options::States::kMomentum
                                                          : Options::States::kNone;
  averaging.running_statistics = config.average_buffers;
  averaging.host_islands = config.sync_island == "host";
  if (!averaging.of_parameters()) return averaging;
  averaging.gradient_steps = gradient_steps_of(config, averaging);
  averaging.schedule = schedule_of(config, averaging);
  averaging.schedule_text = config.sync_schedule.empty()
                                ? "every " + std::to_string(config.sync_every)
                                : "by " + config.origin.find("sync-schedule")->second.value;
  averaging.outer = outer_of(config);
  return averaging;
}

UpdateOptions update_of(const RunConfig& config) {
  using Schedule = engine::LearningRate::Schedule;
  using Scale = UpdateOptions::RateScale;
  UpdateOptions update;
  update.optimizer = engine::find_optimizer(config.optimizer);
  update.settings = config.optimizer_settings;
  update.scale = config.lr_scale == "linear" ? Scale::kLinear
                 : config.lr_scale == "sqrt" ? Scale::kSquareRoot
                                             : Scale::kNone;
  update.with_batch = config.elastic_batch_scales;
  update.rate.base = config.lr;
  update.rate.schedule = config.lr_schedule == "cosine" ? Schedule::kCosine
                         : config.lr_schedule == "step" ? Schedule::kStep
                                                        : Schedule::kConstant;
  update.rate.warmup_steps = config.lr_warmup_steps;
  update.rate.gamma = config.lr_gamma;
  update.rate.minimum = config.lr_min;
  update.milestone_epochs = config.lr_step_epochs;
  update.clip_grad = config.clip_grad;
  update.sum_losses = config.sum_losses;
  update.ema = config.ema;
  update.rate_groups = config.rate_groups;
  return update;
}

BestOptions best_of(const RunConfig& config) {
  using Keep = BestOptions::Keep;
  using engine::Measure;
  BestOptions best{.keep = config.keep_best == "none"   ? Keep::kNever
                           : config.keep_best == "auto" ? Keep::kWhereItChangesNothing
                                                        : Keep::kAlways,
                   .patience = config.early_stop,
                   .min_delta = config.early_stop_delta};
  if (best.keep == Keep::kAlways)
    best.measure = chosen<Measure, 5>(config.keep_best, {{{"loss", Measure::kLoss},
                                                          {"accuracy", Measure::kAccuracy},
                                                          {"top5", Measure::kTop5},
                                                          {"perplexity", Measure::kPerplexity},
                                                          {"r2", Measure::kR2}}});
  return best;
}

engine::Every every(const Interval& interval) { return {interval.every, interval.epochs}; }

}  // namespace

DataOptions data_options(const RunConfig& config) {
  return {.set = set_of(config),
          .stage = config.stage,
          .normalization = normalization_of(config.normalize),
          .augmentation = augmentation_of(config),
          .workers = config.workers,
          .prefetch = config.prefetch,
          .order = config.sampler,
          .sampling = sampling_of(config),
          .batch_of_rank = config.batch_size_per_device,
          .most_ranks = config.most_ranks,
          .batch_scales = config.elastic_batch_scales,
          .check_sampler = config.check_sampler};
}

ComputeOptions compute_options(const RunConfig& config) {
  using engine::DType;
  using engine::Products;
  ComputeOptions compute{
      .device = {.device = config.device, .devices = config.devices, .amp = config.amp}};
  if (config.dtype == "f64") compute.device.cpu_only = "--dtype f64";
  if (config.regression) compute.device.cpu_only = "--task regression";
  if (config.canonical) compute.device.cpu_only = "--reduction-order canonical";
  if (!config.compress.empty() && config.compress != "none")
    compute.device.cpu_only = "--compress " + config.compress;
  if (config.shard_optimizer) compute.device.cpu_only = "--shard-optimizer";
  compute.dtype = config.dtype == "f64" ? DType::kF64 : DType::kF32;
  if (config.amp == "O2") compute.half = DType::kF16;
  if (config.amp == "bf16") compute.half = DType::kBF16;
  if (config.amp == "tf32") compute.products = Products::kTf32;
  if (config.amp == "O1") compute.products = Products::kF16;
  if (config.conv == "direct") compute.convolutions = engine::Convolutions::kDirect;
  compute.loss_scale = engine::parse_loss_scale(config.loss_scale);
  compute.graph = config.cuda_graph;
  compute.pinned = config.pin_memory;
  compute.non_blocking = config.non_blocking;
  compute.threads = config.threads;
  compute.bind = config.bind == "core"   ? Bind::kCore
                 : config.bind == "numa" ? Bind::kNuma
                                         : Bind::kNone;
  compute.deterministic = config.deterministic;
  compute.micro_batches = config.grad_accum;
  return compute;
}

std::optional<engine::ops::RegressionLoss> regression_of(const RunConfig& config) {
  using engine::ops::RegressionLoss;
  if (!config.regression) return std::nullopt;
  return config.loss == "mae" ? RegressionLoss::kAbsolute : RegressionLoss::kSquared;
}

namespace {

// Whether an option that shapes how samples are coded may be another one than the run's.
bool allows_other_coding(const std::vector<std::string>& changes) {
  constexpr auto kShaping = std::to_array<std::string_view>(
      {"dataset", "label-column", "task", "csv-header", "columns", "ignore-columns", "normalize",
       "synthetic-classes", "synthetic-shape", "vocabulary-size"});
  return std::ranges::any_of(changes, [&](const std::string& change) {
    return std::ranges::count(kShaping, std::string_view(change)) > 0;
  });
}

}  // namespace

SessionOptions session_options(const RunConfig& config) {
  return {
      .data = data_options(config),
      .model = {.name = config.model,
                .definition = config.model_definition,
                .label_smoothing = config.label_smoothing,
                .dropout = config.dropout,
                .regression = regression_of(config),
                .synchronized_statistics = config.sync_bn,
                .frozen = config.freeze},
      .compute = compute_options(config),
      .averaging = averaging_of(config),
      .update = update_of(config),
      .keeping = {.directory = config.save_dir,
                  .keep_last = config.keep_last,
                  .background = config.save_async,
                  .resume = config.resume,
                  .init_from = config.init_from,
                  .allowed_mismatches = config.allowed_mismatches,
                  .init_coding = config.init_coding == "none"     ? InitCoding::kNone
                                 : config.init_coding == "inputs" ? InitCoding::kInputs
                                                                  : InitCoding::kAll,
                  .other_coding = allows_other_coding(config.allowed_changes),
                  .placement = io::DeviceMap::parse(config.map_location),
                  .other_optimizer = std::ranges::count(config.allowed_changes, "optimizer") > 0,
                  .configuration = to_toml(options_of_run(config.origin))},
      .best = best_of(config),
      .average_last = config.average_last,
      .backend = config.backend,
      .seed = config.seed,
      .epochs = config.epochs,
      .steps = config.steps,
      .log_every = config.log_every,
      .evaluate = every(config.eval_every),
      .save = every(config.save_every),
      .buffers = config.canonical              ? engine::BufferMode::kEqual
                 : config.buffers == "rank0"   ? engine::BufferMode::kRank0
                 : config.buffers == "average" ? engine::BufferMode::kAverage
                                               : engine::BufferMode::kLocal,
      .verify_every = config.verify_every,
      .on_desync = config.on_desync == "repair" ? engine::OnDesync::kRepair
                   : config.on_desync == "warn" ? engine::OnDesync::kWarn
                                                : engine::OnDesync::kAbort,
      .on_nonfinite = config.on_nonfinite == "skip"       ? engine::OnNonFinite::kSkip
                      : config.on_nonfinite == "continue" ? engine::OnNonFinite::kContinue
                                                          : engine::OnNonFinite::kAbort};
}

}  // namespace tools
