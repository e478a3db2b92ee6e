// Defines the options for batches, their samples and order: --batch-size to --non-blocking.
#include "tools/options/table/option_rows.h"

#include <algorithm>

#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using enum OptionSpec::Agreement;
using enum OptionSpec::OnResume;
using enum OptionSpec::Arrays;

std::optional<ValueFault> take_augmentation(RunConfig& config, const std::string& text) {
  io::Augmentation& augmentation = config.data.augmentation;
  const std::pair<std::string, bool*> known[] = {{"resized-crop", &augmentation.resized_crop},
                                                 {"crop", &augmentation.crop},
                                                 {"flip", &augmentation.flip},
                                                 {"cutout", &augmentation.cutout}};
  const std::vector<std::string> given = base::split_text(text, ',');
  std::vector<std::string> names;  // the others: each may be given once
  for (const auto& entry : known)
    if (std::ranges::find(given, entry.first) == given.end()) names.push_back(entry.first);
  for (const std::string& name : given) {
    const auto found = std::ranges::find(known, name, &std::pair<std::string, bool*>::first);
    const bool unknown = found == std::end(known);
    if (unknown || *found->second)
      return ValueFault{
          "a list of resized-crop, crop, flip and cutout, each at most once, as crop,flip",
          unknown ? base::did_you_mean(name, names) : ""};
    *found->second = true;
  }
  return std::nullopt;
}

std::optional<ValueFault> take_weights(ShareOptions& shares, const std::string& text) {
  shares = {.automatic = text == "auto"};
  if (shares.automatic || text == "equal") return std::nullopt;
  for (const std::string& part : base::split_text(text, ':')) {
    const auto weight = parse_integer(part);
    if (!weight || *weight < 1 || *weight > io::BatchShares::kMaxWeight)
      return ValueFault{"equal, auto, or for each rank a weight from 1 to " +
                        std::to_string(io::BatchShares::kMaxWeight) + ", as 3:1"};
    shares.weights.push_back(*weight);
  }
  return std::nullopt;
}

std::optional<ValueFault> take_shares(RunConfig& config, const std::string& text) {
  return take_weights(config.data.shares, text);
}

std::optional<ValueFault> take_local_steps(RunConfig& config, const std::string& text) {
  return take_weights(config.data.local_steps, text);
}

// `option` divides samples among the ranks by `shares`.
void check_weights(const GivenValues& given, const RunConfig& config, const std::string& option,
                   const ShareOptions& shares) {
  const io::SamplerOptions& sampling = config.data.sampling;
  if (sampling.shard != io::Shard::kContiguous)
    given.demand(option, "--shard contiguous: other modes fix a rank's samples in advance");
  if (sampling.uneven == io::Uneven::kPad)
    given.demand(option, "--uneven join or drop: pad gives every rank equally many samples");
  if (!shares.automatic && config.is_elastic())
    given.demand(option,
                 "ranks that stay, without --elastic: weights belong to a fixed number of "
                 "ranks; --" +
                     option + " auto is possible");
}

void check_shares(const GivenValues& given, const RunConfig& config) {
  const ShareOptions& shares = config.data.shares;
  if (shares.are_equal()) return;
  check_weights(given, config, "shares", shares);
  if (shares.automatic && config.averaging.canonical)
    given.demand("shares",
                 "--reduction-order fast: shards in canonical order stay on their ranks; weights, "
                 "as --shares 3:1, are possible");
}

void check_local_steps(const GivenValues& given, const RunConfig& config) {
  if (config.data.local_steps.are_equal()) return;
  check_weights(given, config, "local-steps", config.data.local_steps);
  if (!config.data.shares.are_equal())
    given.demand("local-steps", "--shares equal: both divide the samples by speed");
  if (config.averaging.host_islands)
    given.demand("local-steps", "--sync-island rank: the ranks of a host take every step together");
  if (config.model.synchronized_statistics)
    given.demand("local-steps", "no --sync-bn: its statistics need all ranks in every step");
  if (config.on_nonfinite == engine::OnNonFinite::kSkip)
    given.demand("local-steps",
                 "another --on-nonfinite than skip, for which all ranks vote in every step");
}

void check_batch(const GivenValues& given, RunConfig& config) {
  config.data.set.seed = config.data.sampling.seed = config.seed;
  check_shares(given, config);
  check_local_steps(given, config);
}

const std::vector<OptionSpec> kBatchRows{
    {.name = "batch-size",
     .field = integer([](RunConfig& c) { return &c.data.sampling.global_batch; }, 1, 1'000'000'000),
     .metavar = "B",
     .initial = "128",
     .help = "global batch: samples per step over all ranks",
     .example = "--batch-size 256",
     .excludes = {"batch-size-per-device"}},
    {.name = "batch-size-per-device",
     .field = integer([](RunConfig& c) { return &c.data.batch_of_rank; }, 1, 1'000'000'000),
     .metavar = "B",
     .help = "samples per device and micro-batch; replaces --batch-size",
     .example = "--batch-size-per-device 64"},
    {.name = "grad-accum",
     .field = integer([](RunConfig& c) { return &c.compute.micro_batches; }, 1, 1'000'000),
     .metavar = "K",
     .help = "micro-batches per device and step (gradient accumulation)",
     .example = "--grad-accum 4"},
    {.name = "uneven",
     .field = choice(
         [](RunConfig& c) { return &c.data.sampling.uneven; },
         {{"join", io::Uneven::kJoin}, {"drop", io::Uneven::kDrop}, {"pad", io::Uneven::kPad}}),
     .help = "an epoch's incomplete step: join: compute it; drop: skip it; pad: repeat samples",
     .example = "--uneven drop"},
    {.name = "shard",
     .field = choice([](RunConfig& c) { return &c.data.sampling.shard; },
                     {{"contiguous", io::Shard::kContiguous},
                      {"strided", io::Shard::kStrided},
                      {"file", io::Shard::kFile}}),
     .help = "a rank's samples: a slice of each step, every W-th of it, or a fixed part of the "
             "data",
     .example = "--shard strided"},
    {.name = "shares",
     .field = parsed(take_shares),
     .metavar = "SHARES",
     .initial = "equal",
     .help = "ranks' shares of a batch: equal, a weight per rank, or auto (by speed)",
     .example = "--spawn 2 --shares 3:1"},
    {.name = "local-steps",
     .field = parsed(take_local_steps),
     .metavar = "STEPS",
     .initial = "equal",
     .help = "ranks' steps per averaging: equal, a weight per rank, or auto (by speed)",
     .example = "--spawn 2 --sync params --sync-every 16 --local-steps 3:1",
     .needs = {is("sync", "params|post-local|slowmo|diloco")}},
    {.name = "normalize",
     .field = choice([](RunConfig& c) { return &c.data.normalization; },
                     {{"auto", std::nullopt},
                      {"unit", io::Normalization::kUnit},
                      {"standard", io::Normalization::kStandard}}),
     .help = "unit: x/255; standard: also mean and deviation per channel; auto: unit for "
             "grayscale",
     .example = "--normalize standard",
     .on_resume = kReject,
     .of_model = true,
     .of_inputs = true,
     .shapes_coding = true},
    {.name = "augment",
     .field = parsed(take_augmentation),
     .metavar = "LIST",
     .help = "random augmentation: any of resized-crop,crop,flip,cutout (default: none)",
     .example = "--augment flip,crop",
     .on_resume = kReject},
    {.name = "crop-padding",
     .field = integer([](RunConfig& c) { return &c.data.augmentation.crop_padding; }, 1, 4096),
     .help = "--augment crop: maximum shift in pixels",
     .example = "--augment crop --crop-padding 2",
     .on_resume = kReject,
     .needs = {is("augment", "crop")}},
    {.name = "cutout-size",
     .field = integer([](RunConfig& c) { return &c.data.augmentation.cutout_size; }, 1, 4096),
     .help = "--augment cutout: side of the square",
     .example = "--augment cutout --cutout-size 8",
     .on_resume = kReject,
     .needs = {is("augment", "cutout")}},
    {.name = "shuffle",
     .field = flag([](RunConfig& c) { return &c.data.sampling.shuffle; }),
     .help = "new sample order every epoch",
     .example = "--no-shuffle",
     .on_resume = kReject},
    {.name = "sampler",
     .field = word([](RunConfig& c) { return &c.data.order; }, {"shuffle", "stratified"}),
     .help = "sample order: a permutation, or one that mixes the classes evenly",
     .example = "--sampler stratified",
     .on_resume = kReject,
     .needs = {is("shuffle", "true")},
     .demands = {{is("stratified"),
                  {is("task", "classification")},
                  "--task classification: it mixes the classes"}}},
    {.name = "check-sampler",
     .field = flag([](RunConfig& c) { return &c.data.check_sampler; }),
     .help = "check at startup that the ranks' shares have no gaps or overlaps",
     .example = "--check-sampler"},
    {.name = "seed",
     .field =
         integer([](RunConfig& c) { return &c.seed; }, 0, std::numeric_limits<std::int64_t>::max()),
     .metavar = "S",
     .help = "seed of initial weights, sample order, augmentation and dropout",
     .example = "--seed 42",
     .on_resume = kReject,
     .of_model = true},
    {.name = "workers",
     .field = integer([](RunConfig& c) { return &c.data.workers; }, 0, 4096),
     .help = "threads that prepare batches (0: the training thread)",
     .example = "--workers 4",
     .agreement = kFree},
    {.name = "prefetch",
     .field = integer([](RunConfig& c) { return &c.data.prefetch; }, 1, 1024),
     .metavar = "K",
     .help = "batches prepared ahead",
     .example = "--prefetch 4",
     .agreement = kFree},
    {.name = "pin-memory",
     .field = flag([](RunConfig& c) { return &c.compute.pinned; }),
     .help = "prepare batches in pinned memory, for asynchronous copies to a device",
     .example = "--no-pin-memory",
     .agreement = kFree,
     .limits = {on_cpus(given(), "no effect")}},
    {.name = "non-blocking",
     .field = flag([](RunConfig& c) { return &c.compute.non_blocking; }),
     .help = "copy the next batch to a CUDA device while it computes",
     .example = "--no-non-blocking",
     .agreement = kFree,
     .needs = {is("pin-memory", "true")},
     .limits = {on_cpus(given(), "no effect")}},
    {.name = "data-on-device",
     .field = choice(
         [](RunConfig& c) { return &c.compute.data_on_device; },
         {{"auto", DataOnDevice::kAuto}, {"on", DataOnDevice::kOn}, {"off", DataOnDevice::kOff}}),
     .help = "keep training samples on the CUDA device (auto: up to 2 GiB that fit)",
     .example = "--data-on-device off",
     .agreement = kFree,
     .limits = {only_cuda(is("on"), "CPUs read samples from host memory")}}};

}  // namespace

OptionGroup batch_rows() { return {"batch", kBatchRows, &check_batch}; }

}  // namespace tools
