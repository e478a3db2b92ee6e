// Defines the options for averaging over ranks: --sync to --on-desync.
#include "tools/options/table/option_rows.h"

#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using enum OptionSpec::Agreement;
using enum OptionSpec::OnResume;
using enum OptionSpec::Arrays;

using Method = AveragingOptions::Method;
using Compression = AveragingOptions::Compression;

constexpr const char* kParameterPolicies = "params|post-local|slowmo|diloco|streaming|gossip";
// Policies whose averagings are over all ranks, and so can average islands and send codes.
constexpr const char* kCollectivePolicies = "params|post-local|slowmo|diloco|streaming";
// Policies that average all parameters at the same time.
constexpr const char* kWholePolicies = "params|post-local|slowmo|diloco";
// Policies that average all parameters, and whose outer step needs no rate of the inner steps.
constexpr const char* kStalePolicies = "params|post-local|diloco";
constexpr const char* kScheduledPolicies = "params|post-local|slowmo|diloco|gossip";
// --sync auto chooses one that averages gradients or parameters.
constexpr const char* kPoliciesOrAuto = "grad|params|post-local|slowmo|diloco|streaming|auto";
constexpr const char* kParameterPoliciesOrAuto =
    "params|post-local|slowmo|diloco|streaming|gossip|auto";
constexpr const char* kOuterSgd = "diloco|streaming|gossip";
constexpr const char* kGradientsAtTimes = "grad|post-local|slowmo|diloco|streaming|gossip";

// Accepts "0:1,1000:8": from step 0 every step, from step 1000 every 8th.
std::optional<ValueFault> take_schedule(RunConfig& config, const std::string& text) {
  std::vector<engine::SyncPhase>& phases = config.averaging.phases;
  std::int64_t last = -1;
  for (const std::string& phase : base::split_text(text, ',')) {
    const std::vector<std::string> parts = base::split_text(phase, ':');
    const auto from = parts.size() == 2 ? parse_integer(parts[0]) : std::nullopt;
    const auto every = parts.size() == 2 ? parse_integer(parts[1]) : std::nullopt;
    if (!from || !every || *from <= last || *from > kMaxCount || *every < 1 || *every > kMaxCount)
      return ValueFault{
          "STEP:K,STEP:K,... with ascending steps from 0 and each K 1 or more, as 0:1,1000:8"};
    phases.push_back({last = *from, *every});
  }
  if (config.averaging.method == Method::kParameters && phases.front().from != 0)
    return ValueFault{
        "its first step to be 0 with --sync params (post-local averages gradients before it)"};
  return std::nullopt;
}

// Accepts none, momentum, all, and "momentum:3,second:6".
std::optional<ValueFault> take_states(RunConfig& config, const std::string& text) {
  AveragingOptions::States& states = config.averaging.states;
  states = {.first = text == "momentum" ? 1 : 0, .second = 0, .all = text == "all"};
  if (text == "none" || text == "momentum" || text == "all") return std::nullopt;
  for (const std::string& part : base::split_text(text, ',')) {
    const std::size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const auto every =
        colon == std::string::npos ? std::nullopt : parse_integer(part.substr(colon + 1));
    std::int64_t* period = name == "momentum" ? &states.first
                           : name == "second" ? &states.second
                                              : nullptr;
    if (period == nullptr || *period != 0 || !every || *every < 1 || *every > kMaxCount)
      return ValueFault{
          "none, momentum, all, or momentum:P,second:Q or one of both, P and Q 1 or more"};
    *period = *every;
  }
  return std::nullopt;
}

// A late rank skips steps, so that no step may need all ranks.
void check_stale(const GivenValues& given, const RunConfig& config) {
  const AveragingOptions& averaging = config.averaging;
  if (averaging.stale.max_behind == 0) return;
  if (averaging.host_islands)
    given.demand("stale", "--sync-island rank: the ranks of a host take every step together");
  if (averaging.compression != Compression::kNone)
    given.demand("stale", "--compress none: codes are of changes from values that all ranks have");
  if (averaging.states.all || averaging.states.first > 0 || averaging.states.second > 0 ||
      averaging.running_statistics)
    given.demand("stale",
                 "--average-state none and no --average-buffers: late ranks send parameters alone");
  if (!config.data.local_steps.are_equal())
    given.demand("stale", "--local-steps equal: a late rank already takes fewer steps");
  if (config.model.synchronized_statistics)
    given.demand("stale", "no --sync-bn: its statistics need all ranks in every step");
  if (config.on_nonfinite == engine::OnNonFinite::kSkip)
    given.demand("stale",
                 "another --on-nonfinite than skip, for which all ranks vote in every step");
}

void check_sync(const GivenValues& given, RunConfig& config) {
  AveragingOptions& averaging = config.averaging;
  averaging.name = given.text("sync");
  averaging.diloco.nesterov = averaging.diloco.nesterov && averaging.diloco.has_momentum();
  const bool begins_later = !averaging.phases.empty() && averaging.phases.front().from > 0;
  if (averaging.method == Method::kPostLocal && averaging.warmup == 0 && !begins_later)
    given.demand("sync", "--sync-warmup W above 0, or a --sync-schedule that begins after step 0");
  if (averaging.method == Method::kStreaming && averaging.streaming.overlap >= averaging.every)
    given.demand("sync-overlap", "a longer period: --sync-every above it");
  check_stale(given, config);
  if ((averaging.shards & (averaging.shards - 1)) != 0)
    given.refuse("reduction-shards", "a power of two");
  config.data.sampling.parts = averaging.canonical ? averaging.shards : 0;
  if (averaging.canonical) config.buffers = engine::BufferMode::kEqual;
}

const std::vector<OptionSpec> kSyncRows{
    {.name = "sync",
     .field = choice([](RunConfig& c) { return &c.averaging.method; },
                     {{"grad", Method::kGradients},
                      {"params", Method::kParameters},
                      {"post-local", Method::kPostLocal},
                      {"slowmo", Method::kSlowMo},
                      {"diloco", Method::kDiloco},
                      {"streaming", Method::kStreaming},
                      {"gossip", Method::kGossip},
                      {"none", Method::kNone},
                      {"auto", Method::kAuto}}),
     .help = "grad: average gradients every step; none: nothing; auto: by the links; others: "
             "parameters every K steps",
     .example = "--sync params --sync-every 8",
     .demands = {{is("auto"),
                  {off("elastic")},
                  "ranks that stay, without --elastic: the policy is chosen once"}}},
    {.name = "sync-every",
     .field = integer([](RunConfig& c) { return &c.averaging.every; }, 1, kMaxCount),
     .metavar = "K",
     .help = "steps between two averagings of parameters",
     .example = "--sync params --sync-every 8",
     .needs = {is("sync", kParameterPoliciesOrAuto)}},
    {.name = "sync-warmup",
     .field = integer([](RunConfig& c) { return &c.averaging.warmup; }, 0, kMaxCount),
     .metavar = "W",
     .help = "average in each of the first W steps (--sync params: parameters, else gradients)",
     .example = "--sync params --sync-every 8 --sync-warmup 100",
     .needs = {is("sync", kParameterPolicies)}},
    {.name = "sync-schedule",
     .field = parsed(take_schedule),
     .metavar = "S:K,S:K,...",
     .help = "average every K steps from step S on; replaces --sync-every, --sync-warmup",
     .example = "--sync params --sync-schedule 0:1,1000:8",
     .needs = {is("sync", kScheduledPolicies)},
     .excludes = {"sync-every", "sync-warmup"}},
    {.name = "sync-island",
     .field = choice([](RunConfig& c) { return &c.averaging.host_islands; },
                     {{"rank", false}, {"host", true}}),
     .help = "host: average gradients within a host every step, parameters across hosts",
     .example = "--sync params --sync-every 8 --sync-island host",
     .needs = {is("sync", kCollectivePolicies)}},
    {.name = "average-state",
     .field = parsed(take_states),
     .metavar = "STATE",
     .initial = "none",
     .help = "optimizer state to average too: none, momentum:P,second:Q or all",
     .example = "--sync params --sync-every 8 --average-state momentum:3",
     .needs = {is("sync", kWholePolicies)}},
    {.name = "average-buffers",
     .field = flag([](RunConfig& c) { return &c.averaging.running_statistics; }),
     .help = "average BatchNorm running statistics along with the parameters",
     .example = "--sync params --average-buffers",
     .needs = {is("sync", kWholePolicies)},
     .demands = {{on(),
                  {is("buffers", "local|average")},
                  "--buffers local or average, not rank0"}}},
    {.name = "outer-lr",
     .field = real_or_auto([](RunConfig& c) { return &c.averaging.diloco.lr; }, positive(1e6)),
     .metavar = "auto|F",
     .help = "learning rate of the outer optimizer (auto: 1, less with momentum)",
     .example = "--sync diloco --sync-every 50 --outer-lr 0.5",
     .needs = {is("sync", kOuterSgd)}},
    {.name = "outer-momentum",
     .field = real_or_auto([](RunConfig& c) { return &c.averaging.diloco.momentum; }, fraction()),
     .metavar = "auto|F",
     .help = "momentum of the outer optimizer (auto: grows from 0; gossip: 0)",
     .example = "--sync diloco --sync-every 50 --outer-momentum 0.8",
     .needs = {is("sync", kOuterSgd)}},
    {.name = "outer-nesterov",
     .field = flag([](RunConfig& c) { return &c.averaging.diloco.nesterov; }),
     .help = "Nesterov momentum in the outer SGD",
     .example = "--sync diloco --sync-every 50 --no-outer-nesterov",
     .needs = {is("sync", kOuterSgd)}},
    {.name = "sync-fragments",
     .field = integer([](RunConfig& c) { return &c.averaging.streaming.fragments; }, 1, kMaxCount),
     .initial = "",
     .help = "streaming: parts of the parameters (default: by the layers' sizes)",
     .example = "--sync streaming --sync-every 50 --sync-fragments 4",
     .needs = {is("sync", "streaming")}},
    {.name = "sync-overlap",
     .field = integer([](RunConfig& c) { return &c.averaging.streaming.overlap; }, 0, kMaxCount),
     .metavar = "T",
     .help = "streaming: steps from the start of an exchange to its merging",
     .example = "--sync streaming --sync-every 50 --sync-overlap 2",
     .needs = {is("sync", "streaming")}},
    {.name = "sync-mixing",
     .field = real([](RunConfig& c) { return &c.averaging.streaming.mixing; }, positive(1)),
     .help = "streaming: weight of the average when it is merged",
     .example = "--sync streaming --sync-every 50 --sync-mixing 1",
     .needs = {is("sync", "streaming")}},
    {.name = "stale",
     .field = integer([](RunConfig& c) { return &c.averaging.stale.max_behind; }, 0, kMaxCount),
     .metavar = "S",
     .help = "averagings that need not wait for a late rank's change (0: all wait)",
     .example = "--sync diloco --sync-every 50 --stale 2",
     .needs = {is("sync", kStalePolicies)}},
    {.name = "stale-patience",
     .field = real([](RunConfig& c) { return &c.averaging.stale.patience; }, not_negative()),
     .help = "wait for late ranks, as a fraction of the time since the last averaging",
     .example = "--sync diloco --sync-every 50 --stale 2 --stale-patience 0.3",
     .needs = {on("stale")}},
    {.name = "slowmo-alpha",
     .field = real([](RunConfig& c) { return &c.averaging.slowmo.alpha; }, positive(1e6)),
     .help = "slow learning rate of slowmo",
     .example = "--sync slowmo --sync-every 50 --slowmo-alpha 0.9",
     .needs = {is("sync", "slowmo")}},
    {.name = "slowmo-beta",
     .field = real([](RunConfig& c) { return &c.averaging.slowmo.beta; }, fraction()),
     .help = "slow momentum of slowmo",
     .example = "--sync slowmo --sync-every 50 --slowmo-beta 0.7",
     .needs = {is("sync", "slowmo")}},
    {.name = "compress",
     .field = choice([](RunConfig& c) { return &c.averaging.compression; },
                     {{"none", Compression::kNone},
                      {"bf16", Compression::kBf16},
                      {"topk", Compression::kTopK},
                      {"powersgd", Compression::kPowerSgd},
                      {"int8", Compression::kInt8},
                      {"int4", Compression::kInt4},
                      {"sparse", Compression::kSparse}}),
     .help = "compress gradients or changes of parameters, with error feedback",
     .example = "--sync diloco --sync-every 50 --compress int4",
     .needs = {is("sync", kPoliciesOrAuto), is("reduction-order", "fast")},
     .demands = {{is("bf16|topk|powersgd"), {is("sync", "grad")}, "--sync grad"}}},
    {.name = "topk-ratio",
     .field = real([](RunConfig& c) { return &c.averaging.topk_ratio; }, positive(1)),
     .help = "topk: fraction of the gradient's elements to send",
     .example = "--compress topk --topk-ratio 0.05",
     .needs = {is("compress", "topk")}},
    {.name = "powersgd-rank",
     .field = integer([](RunConfig& c) { return &c.averaging.powersgd_rank; }, 1, 1024),
     .metavar = "R",
     .help = "powersgd: rank of the factors",
     .example = "--compress powersgd --powersgd-rank 2",
     .needs = {is("compress", "powersgd")}},
    {.name = "sparse-ratio",
     .field = real([](RunConfig& c) { return &c.averaging.sparse.ratio; }, positive(1)),
     .help = "sparse: fraction of each 4096 elements to send",
     .example = "--compress sparse --sparse-ratio 0.03",
     .needs = {is("compress", "sparse")}},
    {.name = "sparse-bits",
     .field = choice([](RunConfig& c) { return &c.averaging.sparse.bits; },
                     {{"2", 2}, {"4", 4}, {"8", 8}}),
     .help = "sparse: bits of each value sent",
     .example = "--compress sparse --sparse-bits 4",
     .needs = {is("compress", "sparse")}},
    {.name = "sparse-warmup",
     .field = integer([](RunConfig& c) { return &c.averaging.sparse.warmup; }, 0, kMaxCount),
     .metavar = "W",
     .help = "sparse gradients: first steps, which send 1/4, 1/16, ... of the elements",
     .example = "--compress sparse --sparse-warmup 1000",
     .needs = {is("compress", "sparse"), is("sync", "grad")}},
    {.name = "sparse-momentum",
     .field = real([](RunConfig& c) { return &c.averaging.sparse.momentum; }, fraction()),
     .help = "sparse gradients: momentum before the selection, for sgd without its own",
     .example = "--compress sparse --sparse-momentum 0.9 --momentum 0",
     .needs = {is("compress", "sparse"), is("sync", "grad"), is("optimizer", "sgd")},
     .demands = {{on(), {off("momentum")}, "--momentum 0: gradients would be accumulated twice"}}},
    {.name = "sparse-decay",
     .field = real([](RunConfig& c) { return &c.averaging.sparse.decay; }, positive(1)),
     .help = "sparse changes of parameters: factor on what was not sent earlier",
     .example = "--sync diloco --sync-every 50 --compress sparse --sparse-decay 0.9",
     .needs = {is("compress", "sparse"), is("sync", kCollectivePolicies)}},
    {.name = "bucket-cap-mb",
     .field = mebibytes([](RunConfig& c) { return &c.averaging.buckets.bytes; }, 65536),
     .metavar = "MB",
     .help = "size of a gradient bucket",
     .example = "--bucket-cap-mb 5",
     .needs = {is("reduction-order", "fast"), is("sync", kGradientsAtTimes)}},
    {.name = "delay-allreduce",
     .field = opposite_flag([](RunConfig& c) { return &c.averaging.buckets.overlap; }),
     .help = "average after the backward pass, not during it",
     .example = "--delay-allreduce",
     .needs = {is("reduction-order", "fast"), is("sync", kGradientsAtTimes)}},
    {.name = "shard-optimizer",
     .field = flag([](RunConfig& c) { return &c.averaging.shard_optimizer; }),
     .help = "shard the optimizer state over the ranks (ZeRO-1)",
     .example = "--spawn 4 --shard-optimizer",
     .needs = {is("sync", "grad")},
     .demands = {{on(),
                  {off("elastic")},
                  "ranks that stay, without --elastic: a rank that is lost takes its share of "
                  "the optimizer's state with it"}}},
    {.name = "reduction",
     .field = choice([](RunConfig& c) { return &c.update.sum_losses; },
                     {{"mean", false}, {"sum", true}}),
     .help = "gradient of the mean or the sum of the samples' losses",
     .example = "--reduction sum",
     .on_resume = kReject},
    {.name = "reduction-order",
     .field = choice([](RunConfig& c) { return &c.averaging.canonical; },
                     {{"fast", false}, {"canonical", true}}),
     .help = "canonical: same bits for any number of ranks, any backend and any --threads",
     .example = "--reduction-order canonical",
     .needs = {is("sync", "grad")},
     .demands = {{is("canonical"),
                  {is("buffers", "local|rank0")},
                  "--buffers local or rank0: an average depends on the number of ranks"}}},
    {.name = "reduction-shards",
     .field = integer([](RunConfig& c) { return &c.averaging.shards; }, 1, 1024),
     .metavar = "S",
     .help = "canonical: shards per batch, a power of two; the maximum number of ranks",
     .example = "--reduction-order canonical --reduction-shards 16",
     .needs = {is("reduction-order", "canonical")}},
    {.name = "verify-every",
     .field = integer([](RunConfig& c) { return &c.verify_every; }, 1, kMaxCount),
     .metavar = "K",
     .help = "compare all replicas' tensors every K steps (default: never)",
     .example = "--verify-every 100"},
    {.name = "on-desync",
     .field =
         choice([](RunConfig& c) { return &c.on_desync; }, {{"abort", engine::OnDesync::kAbort},
                                                            {"warn", engine::OnDesync::kWarn},
                                                            {"repair", engine::OnDesync::kRepair}}),
     .help = "if replicas differ: exit with 76, warn, or copy the majority's tensors",
     .example = "--verify-every 100 --on-desync repair",
     .needs = {given("verify-every")}}};

}  // namespace

OptionGroup sync_rows() { return {"sync", kSyncRows, &check_sync}; }

}  // namespace tools
