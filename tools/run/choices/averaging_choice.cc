// Maps options to policies, and composes the policies.
#include "tools/run/choices/averaging_choice.h"

#include <algorithm>
#include <stdexcept>

#include "backends/identity/host_layout.h"
#include "engine/averaging/codes/coded_sum.h"
#include "engine/averaging/low_rank/power_sgd_parts.h"
#include "engine/averaging/math/device_math.h"
#include "engine/averaging/policies/fragments.h"
#include "engine/averaging/stale/stale_averaging.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/averaging/sums/optimizer_sharding.h"
#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using AveragingMethod = AveragingOptions::Method;
using Compression = AveragingOptions::Compression;

// Returns the number of steps at the start that average gradients: all warm-ups except that of
// --sync params.
std::int64_t gradient_steps(const AveragingOptions& options) {
  if (options.method == AveragingMethod::kParameters || !options.of_parameters()) return 0;
  return options.phases.empty() ? options.warmup : options.phases.front().from;
}

// The schedule is in global steps.
engine::SyncSchedule schedule_of(const AveragingOptions& options) {
  if (!options.phases.empty()) return engine::SyncSchedule(options.phases);
  if (options.method == AveragingMethod::kParameters)
    return engine::SyncSchedule::constant(options.every, options.warmup);
  return engine::SyncSchedule({{gradient_steps(options), options.every}});
}

// Returns e.g. "every 8", "by 0:1,1000:8".
std::string schedule_text(const AveragingOptions& options) {
  if (options.phases.empty()) return "every " + std::to_string(options.every);
  std::vector<std::string> phases;
  for (const auto& [from, every] : options.phases)
    phases.push_back(std::to_string(from) + ":" + std::to_string(every));
  return "by " + base::join_text(phases, ",");
}

// Pairs take the plain mean unless a momentum or another rate than 1 is given: the momentum of the
// rule for means over all ranks costs them accuracy (docs/averaging.md).
std::optional<engine::OuterOptions> outer_sgd_of(const AveragingOptions& options) {
  if (options.method == AveragingMethod::kDiloco || options.method == AveragingMethod::kStreaming)
    return options.diloco;
  if (options.method != AveragingMethod::kGossip) return std::nullopt;
  engine::OuterOptions outer = options.diloco;
  outer.momentum = outer.momentum.value_or(0);
  outer.nesterov = outer.nesterov && outer.has_momentum();
  if (!outer.has_momentum() && outer.lr.value_or(1) == 1) return std::nullopt;
  return outer;
}

std::optional<engine::OuterOptions> outer_of(const AveragingOptions& options) {
  if (const auto outer = outer_sgd_of(options)) return outer;
  if (options.method == AveragingMethod::kSlowMo)
    return engine::OuterOptions{options.slowmo.alpha, options.slowmo.beta, /*nesterov=*/false,
                                /*over_inner_rate=*/true};
  return std::nullopt;
}

// Returns true if the policy changes the parameters of a rank that is alone: an outer step with
// rate 1 and without momentum gives the mean, and the mean of one is itself, or, with overlap, what
// it was some steps ago.
bool changes_one_rank(const AveragingOptions& options) {
  const auto outer = outer_of(options);
  if (outer && (outer->has_momentum() || outer->lr.value_or(1) != 1)) return true;
  return options.method == AveragingMethod::kStreaming && options.streaming.overlap > 0;
}

// With policies that average parameters, these alone are compressed.
std::unique_ptr<engine::GradientSum> make_sum(const AveragingOptions& options,
                                              backends::Communicator& communicator,
                                              const AveragingParts& parts) {
  engine::FlatBuffer& gradients = parts.model.parameters.gradients;
  switch (options.of_gradients() ? options.compression : Compression::kNone) {
    case Compression::kBf16:
      return engine::make_bf16_sum(communicator, gradients);
    case Compression::kTopK:
      return engine::make_top_k_sum(communicator, gradients, options.topk_ratio);
    case Compression::kPowerSgd:
      return engine::make_power_sgd_sum(communicator, gradients, parts.context,
                                        options.powersgd_rank);
    case Compression::kInt8:
    case Compression::kInt4:
    case Compression::kSparse:
      return engine::make_coded_sum(communicator, gradients, parts.context,
                                    *codes_of(options, parts.seed));
    case Compression::kNone:
      break;
  }
  if (parts.shares != nullptr)
    return engine::make_scattered_sum(communicator, gradients, *parts.shares);
  return engine::make_plain_sum(communicator, gradients);
}

// Returns what a policy needs to know of steps whose gradients the device sums as codes.
engine::StepSumOptions coded_step(const AveragingOptions& options, std::uint64_t seed,
                                  const engine::FlatBuffer& gradients) {
  if (options.compression == Compression::kBf16)
    return {.bytes = 2 * static_cast<std::size_t>(gradients.size()),
            .note = " (bf16), encoded on the device",
            .has_error = true};
  if (options.compression == Compression::kTopK)
    return {.bytes = engine::top_k_bytes(gradients, options.topk_ratio),
            .note = engine::top_k_note(options.topk_ratio) + ", encoded on the device",
            .has_error = true};
  if (options.compression == Compression::kPowerSgd)
    return {.bytes = engine::power_sgd_bytes(gradients, options.powersgd_rank),
            .note = engine::power_sgd_note(options.powersgd_rank) + ", encoded on the device",
            .has_error = true,
            .make_factors = [&gradients, rank = options.powersgd_rank] {
              return engine::first_power_sgd_factors(gradients, rank);
            }};
  const engine::LossyOptions codes = *codes_of(options, seed);
  const engine::BucketOptions& buckets = options.buckets;
  const std::string note = " (" + engine::lossy_text(codes) + "), encoded on the device";
  if (codes.kind == engine::LossyOptions::Kind::kSparse)
    return {.note = note,
            .bytes_in = [codes, count = gradients.size()](
                            std::int64_t round) { return engine::code_bytes(codes, count, round); },
            .has_error = true,
            .has_velocity = codes.momentum > 0};
  std::size_t bytes = 0;
  std::int64_t first = 0;
  for (const std::int64_t end :
       engine::bucket_ends(gradients.size(), engine::size_of(gradients.dtype()), buckets.bytes)) {
    bytes += engine::code_bytes(codes, end - first, 0);
    first = end;
  }
  return {.bytes = bytes, .note = note, .has_error = true};
}

std::unique_ptr<engine::AveragingPolicy> make_gradients(const AveragingOptions& options,
                                                        backends::Communicator& communicator,
                                                        const AveragingParts& parts) {
  const engine::FlatBuffer& gradients = parts.model.parameters.gradients;
  if (parts.on_device && encodes_gradients_on_device(options))
    return engine::make_step_gradient_averaging(gradients,
                                                coded_step(options, parts.seed, gradients));
  const engine::BucketOptions buckets =
      parts.shares != nullptr ? engine::sharded_buckets(options.buckets, communicator.world_size())
                              : options.buckets;
  return engine::make_gradient_averaging(make_sum(options, communicator, parts), gradients,
                                         buckets);
}

// Returns with every how many averagings a state is averaged; 0: never.
std::int64_t period_of(const AveragingOptions::States& states, engine::StateRole role) {
  if (states.all) return 1;
  if (role == engine::StateRole::kFirstMoment) return states.first;
  return role == engine::StateRole::kSecondMoment ? states.second : 0;
}

engine::ParameterAveragingOptions parameter_options(const AveragingOptions& options,
                                                    engine::ModelState& model,
                                                    engine::Optimizer& optimizer) {
  engine::ParameterAveragingOptions parameters;
  parameters.name = options.name;
  std::vector<engine::SyncPhase> phases = schedule_of(options).phases();
  for (engine::SyncPhase& phase : phases) phase.from -= gradient_steps(options);
  parameters.schedule = engine::SyncSchedule(phases);
  parameters.outer = outer_of(options);
  const std::vector<engine::Optimizer::State> states = optimizer.state();
  parameters.all_states = true;
  for (const engine::Optimizer::State& s : states) {
    const std::int64_t every = period_of(options.states, s.role);
    parameters.all_states = parameters.all_states && every == 1;
    if (every == 0) continue;
    parameters.states.push_back({s.buffer, every});
    parameters.states_text += (parameters.states_text.empty() ? "" : " and ") + std::string(s.name);
    if (every > 1) parameters.states_text += " (every " + std::to_string(every) + ")";
  }
  if (options.running_statistics && model.running.size() > 0) parameters.running = &model.running;
  return parameters;
}

engine::StreamingOptions streaming_options(const AveragingOptions& options,
                                           const engine::ModelState& model, std::uint64_t seed) {
  const engine::FlatBuffer& gradients = model.parameters.gradients;
  const auto layers = static_cast<std::int64_t>(engine::layers_of(gradients).size());
  if (options.streaming.fragments > layers)
    throw io::ConfigError("--sync-fragments is " + std::to_string(options.streaming.fragments) +
                          "; expected at most " + std::to_string(layers) +
                          ", the number of trained layers");
  return {.name = options.name,
          .every = options.every,
          .fragments = options.streaming.fragments,
          .overlap = options.streaming.overlap,
          .mixing = options.streaming.mixing,
          .outer = options.diloco,
          .lossy = codes_of(options, seed)};
}

std::unique_ptr<engine::AveragingPolicy> make_of_parameters(const AveragingOptions& options,
                                                            const AveragingParts& parts) {
  if (options.method == AveragingMethod::kStreaming)
    return engine::make_streaming_averaging(parts.communicator, parts.model.parameters,
                                            parts.context,
                                            streaming_options(options, parts.model, parts.seed));
  engine::ParameterAveragingOptions averaged =
      parameter_options(options, parts.model, parts.optimizer);
  if (options.method == AveragingMethod::kGossip)
    return engine::make_gossip_averaging(parts.communicator, parts.pairs, parts.model.parameters,
                                         parts.context,
                                         {.name = averaged.name,
                                          .schedule = averaged.schedule,
                                          .seed = parts.seed,
                                          .outer = averaged.outer});
  if (options.stale.max_behind > 0)
    return engine::make_stale_averaging(parts.communicator, parts.model.parameters,
                                        {.name = averaged.name,
                                         .schedule = averaged.schedule,
                                         .outer = averaged.outer,
                                         .stale = options.stale});
  averaged.lossy = codes_of(options, parts.seed);
  return engine::make_parameter_averaging(parts.communicator, parts.model.parameters, parts.context,
                                          averaged);
}

// Returns the bytes that the sum of compressed gradients keeps for each element of `size` bytes.
std::size_t bytes_of_sum(const AveragingOptions& options, std::size_t size) {
  switch (options.compression) {
    case Compression::kNone:
      return 0;
    case Compression::kBf16:
      return size + 2;  // the error, and what is sent
    case Compression::kTopK:
      return 2 * size;  // the error, and its magnitudes
    case Compression::kSparse:
      return options.sparse.momentum > 0 ? 2 * size : size;
    case Compression::kPowerSgd:
    case Compression::kInt8:
    case Compression::kInt4:
      break;
  }
  return size;
}

// Returns the number of copies of the trained parameters that a policy which averages them keeps.
std::size_t copies_of_policy(const AveragingOptions& options) {
  const auto outer = outer_of(options);
  const std::size_t of_outer = outer ? (outer->has_momentum() ? 2 : 1) : 0,
                    of_codes = codes_of(options, 0) ? 3 : 0;
  if (options.method == AveragingMethod::kStreaming) return 1 + of_outer + of_codes;
  if (options.method == AveragingMethod::kGossip) return 1 + of_outer;
  if (options.stale.max_behind > 0) return 5 + std::max<std::size_t>(1, of_outer);
  return of_outer + of_codes;
}

int host_count(const backends::Group& group) {
  return static_cast<int>(backends::host_layout(group).hosts.size());
}

std::string rate_text(const std::optional<double>& rate) {
  return rate ? base::shortest_text(*rate) : "auto";
}

std::string gradients_text(const AveragingOptions& options) {
  if (options.canonical) return " canonical";
  const bool whole = options.compression == Compression::kTopK ||
                     options.compression == Compression::kPowerSgd ||
                     options.compression == Compression::kSparse;
  std::string text = whole || !options.buckets.overlap ? " delayed" : " overlapped";
  if (options.compression == Compression::kBf16) text += ", bf16";
  if (options.compression == Compression::kTopK)
    text += ", top-k " + base::shortest_text(options.topk_ratio);
  if (options.compression == Compression::kPowerSgd)
    text += ", PowerSGD rank " + std::to_string(options.powersgd_rank);
  if (const auto lossy = codes_of(options, 0)) {
    text += ", " + engine::lossy_text(*lossy);
    if (lossy->warmup > 0) text += " after " + std::to_string(lossy->warmup) + " steps";
  }
  return text;
}

}  // namespace

std::optional<engine::LossyOptions> codes_of(const AveragingOptions& options, std::uint64_t seed) {
  using Kind = engine::LossyOptions::Kind;
  switch (options.compression) {
    case Compression::kInt8:
    case Compression::kInt4:
      return engine::LossyOptions{.kind = Kind::kQuantized,
                                  .bits = options.compression == Compression::kInt8 ? 8 : 4,
                                  .seed = seed};
    case Compression::kSparse:
      return engine::LossyOptions{.kind = Kind::kSparse,
                                  .bits = options.sparse.bits,
                                  .ratio = options.sparse.ratio,
                                  .warmup = options.of_gradients() ? options.sparse.warmup : 0,
                                  .decay = options.of_gradients() ? 1 : options.sparse.decay,
                                  .momentum = options.of_gradients() ? options.sparse.momentum : 0};
    default:
      return std::nullopt;
  }
}

bool averages(const AveragingOptions& options, int world_size) {
  if (world_size == 1) return changes_one_rank(options);
  return options.method != AveragingMethod::kNone;
}

AveragingOptions options_of_group(AveragingOptions options, int world_size) {
  if (world_size > 1 || !options.of_parameters()) return options;
  options.compression = Compression::kNone;
  options.stale.max_behind = 0;
  return options;
}

std::vector<int> island_ranks(const AveragingOptions& options, const backends::Group& group) {
  if (!options.host_islands || !options.of_parameters()) return {group.rank()};
  return backends::host_layout(group).local_ranks();
}

std::vector<int> first_island_ranks(const AveragingOptions& options, const backends::Group& group) {
  if (!options.host_islands || !options.of_parameters() || group.world_size() == 1) return {};
  std::vector<int> first(static_cast<std::size_t>(group.world_size()));
  for (const std::vector<int>& ranks : backends::host_layout(group).hosts)
    for (const int rank : ranks) first[static_cast<std::size_t>(rank)] = ranks.front();
  return first;
}

std::unique_ptr<engine::AveragingPolicy> make_averaging(const AveragingOptions& options,
                                                        const backends::Group& group,
                                                        const AveragingParts& parts) {
  if (options.method == AveragingMethod::kAuto)
    throw std::logic_error("--sync auto must be replaced by choose_sync()");
  if (!averages(options, group.world_size())) return engine::make_no_averaging(group.world_size());
  if (options.method == AveragingMethod::kGradients)
    return make_gradients(options, parts.communicator, parts);
  auto parameters = make_of_parameters(options, parts);
  const std::int64_t warmup = gradient_steps(options);
  if (warmup == 0 && parts.island == nullptr) return parameters;
  engine::MixedAveragingOptions mixed;
  mixed.name = options.name;
  mixed.warmup = warmup;
  if (warmup > 0)
    mixed.all = group.world_size() > 1
                    ? make_gradients(options, parts.communicator, parts)
                    : engine::make_step_gradient_averaging(parts.model.parameters.gradients, {});
  if (parts.island != nullptr) {
    mixed.island = make_gradients(options, *parts.island, parts);
    const int hosts = host_count(group);
    mixed.island_text = std::to_string(hosts) + (hosts == 1 ? " host" : " hosts");
  }
  mixed.parameters = std::move(parameters);
  return engine::make_mixed_averaging(std::move(mixed));
}

bool sums_parameters_on_devices(const AveragingOptions& options) {
  return options.of_parameters() && options.stale.max_behind == 0;
}

bool encodes_gradients_on_device(const AveragingOptions& options) {
  return options.method == AveragingMethod::kGradients && options.compression != Compression::kNone;
}

std::size_t averaging_bytes(const AveragingOptions& options, int world_size, engine::DType dtype) {
  if (!averages(options, world_size)) return 0;
  const std::size_t size = engine::size_of(dtype);
  return options.of_gradients() ? bytes_of_sum(options, size) : size * copies_of_policy(options);
}

// Averagings without late ranks stay in host memory, where another thread calculates them.
std::size_t averaging_bytes_on_device(const AveragingOptions& options, int world_size,
                                      engine::DType dtype) {
  if (!averages(options, world_size)) return 0;
  const std::size_t size = engine::size_of(dtype);
  if (encodes_gradients_on_device(options))  // what is sent is counted as codes
    return options.compression == Compression::kSparse ? bytes_of_sum(options, size) : size;
  if (!options.of_parameters() || options.stale.max_behind > 0) return 0;
  return size * copies_of_policy(options);
}

bool sums_gradients_after(std::int64_t steps, const AveragingOptions& options, int world_size) {
  if (world_size == 1 || options.method == AveragingMethod::kNone) return false;
  return options.method == AveragingMethod::kGradients || options.host_islands ||
         steps < gradient_steps(options);
}

std::string averaging_text(const AveragingOptions& options, std::string_view policy) {
  std::string text(policy);
  if (policy == "none")
    return options.of_parameters() ? text + " (one rank: " + options.name + " changes nothing)"
                                   : text;
  if (policy == "grad")
    return text + gradients_text(options) + (options.shard_optimizer ? ", optimizer sharded" : "");
  text += " " + schedule_text(options);
  if (options.method == AveragingMethod::kStreaming)
    text += ", overlap " + std::to_string(options.streaming.overlap) + ", mixing " +
            base::shortest_text(options.streaming.mixing);
  if (const auto outer = outer_sgd_of(options))
    text += ", outer lr " + rate_text(outer->lr) + " momentum " + rate_text(outer->momentum) +
            (outer->nesterov ? " nesterov" : "");
  if (options.method == AveragingMethod::kSlowMo)
    text += ", alpha " + base::shortest_text(options.slowmo.alpha) + " beta " +
            base::shortest_text(options.slowmo.beta);
  if (const std::int64_t steps = gradient_steps(options); steps > 0)
    text += " after " + std::to_string(steps) + " of grad";
  if (options.stale.max_behind > 0)
    text += ", stale by at most " + std::to_string(options.stale.max_behind);
  if (options.host_islands) text += ", islands are hosts";
  if (const auto lossy = codes_of(options, 0)) text += ", " + engine::lossy_text(*lossy);
  return text;
}

namespace {

// Returns the ranges of the parameters that one averaging each sends: fragments, or all.
std::vector<engine::Elements> parts_averaged(const AveragingOptions& options,
                                             const engine::ModelState& model) {
  const engine::FlatBuffer& gradients = model.parameters.gradients;
  if (options.method != AveragingMethod::kStreaming) return {{0, gradients.size()}};
  const engine::StreamingOptions streaming = streaming_options(options, model, 0);
  return engine::fragments_of(gradients, streaming.fragments, streaming.every);
}

}  // namespace

std::optional<engine::AveragingPlan> averaging_plan(const AveragingOptions& options,
                                                    const backends::Group& group,
                                                    engine::ModelState& model,
                                                    engine::Optimizer& optimizer,
                                                    const engine::PlannedSteps& steps) {
  if (!options.of_parameters() || !averages(options, group.world_size())) return std::nullopt;
  const engine::ParameterAveragingOptions parameters = parameter_options(options, model, optimizer);
  engine::AveragingPlan plan;
  plan.steps = steps;
  plan.warmup = gradient_steps(options);
  plan.schedule = schedule_of(options);
  plan.bytes_uncompressed = static_cast<std::int64_t>(model.parameters.gradients.bytes());
  plan.bytes_each = plan.bytes_uncompressed;
  if (const auto lossy = codes_of(options, 0)) {
    plan.compression = engine::lossy_text(*lossy);
    for (const engine::Elements& part : parts_averaged(options, model)) {
      plan.bytes_compressed += static_cast<std::int64_t>(engine::code_bytes(*lossy, part.count, 0));
      plan.bytes_received +=
          engine::coded_bytes_received(*lossy, part.count, group.world_size(), 0);
    }
    plan.bytes_each = plan.bytes_compressed;
    plan.sparse_beside_momentum = lossy->kind == engine::LossyOptions::Kind::kSparse &&
                                  parameters.outer && parameters.outer->momentum.value_or(1) > 0;
  }
  for (const engine::Optimizer::State& state : optimizer.state()) {
    const std::int64_t every = period_of(options.states, state.role);
    const std::int64_t bytes = model.parameters.trained_elements(*state.buffer) *
                               static_cast<std::int64_t>(engine::size_of(state.buffer->dtype()));
    if (every == 1) plan.bytes_each += bytes;
    if (every > 1) plan.states.push_back({std::string(state.name), every, bytes});
  }
  if (parameters.running != nullptr)
    plan.bytes_each += static_cast<std::int64_t>(parameters.running->bytes());
  plan.outer = parameters.outer;
  if (options.method == AveragingMethod::kStreaming)
    plan.streaming =
        engine::plan_streaming(streaming_options(options, model, 0), model.parameters.gradients);
  plan.in_pairs = options.method == AveragingMethod::kGossip;
  if (plan.in_pairs && plan.outer)
    plan.bytes_at_ends = plan.bytes_each * (plan.outer->has_momentum() ? 3 : 2);
  plan.ranks = group.world_size();
  if (plan.ranks == 1) {
    plan.bytes_each = plan.bytes_at_ends = 0;
    plan.notes.emplace_back("one rank takes the outer steps alone, and sends nothing");
    return plan;
  }
  plan.islands = options.host_islands ? host_count(group) : 0;
  if (const std::int64_t behind = options.stale.max_behind; behind > 0) {
    plan.notes.push_back("late ranks are waited for during at most " +
                         base::shortest_text(100 * options.stale.patience) +
                         " % of a period, unless they are " + std::to_string(behind) +
                         (behind == 1 ? " averaging" : " averagings") +
                         " behind; they skip steps, and their changes join the next averaging");
    plan.notes.emplace_back(
        "all ranks wait for each other in evaluations, in checkpoints, at ends of epochs, and "
        "about once per second for control values");
  }
  return plan;
}

}  // namespace tools
