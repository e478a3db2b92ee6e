// Defines the options for ranks and their group: --backend to --stall-abort.
#include "tools/options/table/option_rows.h"

#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using enum OptionSpec::Agreement;
using enum OptionSpec::OnResume;
using enum OptionSpec::Arrays;

constexpr int kMaxRanks = 65536;
constexpr const char* kNoElastic =
    "no --elastic, which assigns ranks at the rendezvous: leave it out";

std::optional<ValueFault> take_spawn(RunConfig& config, const std::string& text) {
  const auto ranks = parse_integer(text);
  if (!ranks || *ranks < 0 || *ranks > 1024) return ValueFault{"an integer from 0 to 1024"};
  config.spawn = static_cast<int>(*ranks);
  return std::nullopt;
}

// Accepts "2:4", "4" for 4:4, or "on", which --spawn turns into 1:N.
std::optional<ValueFault> take_elastic(RunConfig& config, const std::string& text) {
  if (text == "off") return std::nullopt;
  if (text == "on") {
    config.min_ranks = 1;
    config.data.max_ranks = config.spawn;
    return std::nullopt;
  }
  const std::vector<std::string> parts = base::split_text(text, ':');
  const auto least = parse_integer(parts.front()), most = parse_integer(parts.back());
  if (parts.size() > 2 || !least || !most || *least < 1 || *most < *least || *most > 1024)
    return ValueFault{"MIN:MAX with 1 <= MIN <= MAX <= 1024, as 2:4"};
  if (config.spawn > *most)
    return ValueFault{"a MAX of at least --spawn, which is " + std::to_string(config.spawn)};
  config.min_ranks = static_cast<int>(*least);
  config.data.max_ranks = static_cast<int>(*most);
  return std::nullopt;
}

// "n1:29600", "[2001:db8::7]:29600" or "rank0:29600"
std::optional<ValueFault> take_relay(RunConfig& config, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port = parse_integer(text.substr(colon + 1));  // the whole text without a colon
  if (host.empty() || !port || *port < 1 || *port > 65535)
    return ValueFault{"HOST:PORT of an `engine relay`, or rank0:PORT, with a port from 1 to 65535"};
  config.group.listen.relay = backends::RelayPlace{host, static_cast<int>(*port)};
  return std::nullopt;
}

// Options that depend on the number of ranks are invalid if that number changes.
void check_elastic_batch(const GivenValues& given, RunConfig& config) {
  config.data.batch_scales = config.data.batch_scales && config.is_elastic();
  config.update.with_batch = config.data.batch_scales;
  if (config.data.batch_scales &&
      (!given.has("batch-size") ? 0 : config.data.sampling.global_batch) % config.data.max_ranks !=
          0)
    given.refuse("batch-size", "a multiple of the " + std::to_string(config.data.max_ranks) +
                                   " ranks of --elastic, for --elastic-batch scale");
}

void check_group(const GivenValues& given, RunConfig& config) {
  config.asked_backend = config.group.backend;
  const backends::IdentityRequest& identity = config.identity;
  if (config.group.stall.abort && config.group.stall.after_ms == 0)
    given.refuse("stall-after", "above 0, which --stall-abort needs");
  for (const auto& [name, rank] :
       {std::pair{"rank", identity.rank}, std::pair{"local-rank", identity.local_rank}})
    if (rank && identity.world_size && *rank >= *identity.world_size)
      given.refuse(name,
                   "less than --world-size, which is " + std::to_string(*identity.world_size));
  // An elastic job excludes a rank that cannot be reached.
  if (config.is_elastic()) config.group.links.patience_ms = 0;
  // A stored "on" is read before the --spawn that says MAX.
  if (config.min_ranks > 0 && !config.is_elastic())
    given.refuse("elastic", "MIN:MAX, as 2:4, where --spawn does not say MAX");
  check_elastic_batch(given, config);
}

const std::vector<OptionSpec> kGroupRows{
    {.name = "backend",
     .field = text([](RunConfig& c) { return &c.group.backend; }),
     .metavar = "NAME",
     .help = "communication: auto, a backend of `engine env`, checked:A,B or a plug-in's path",
     .example = "--backend gloo"},
    {.name = "local-stage",
     .field = choice([](RunConfig& c) { return &c.group.local_stage; },
                     {{"auto", backends::LocalStage::kAuto},
                      {"shm", backends::LocalStage::kShm},
                      {"off", backends::LocalStage::kOff}}),
     .help = "reduce over shared memory among the ranks of a host first (auto: if --backend is "
             "auto)",
     .example = "--local-stage off"},
    {.name = "streams",
     .field = integer([](RunConfig& c) { return &c.group.links.streams; }, 1, 64),
     .help = "connections per pair of ranks, for backends that stripe",
     .example = "--backend socket --streams 4"},
    {.name = "slices",
     .field = choice([](RunConfig& c) { return &c.measured_slices; },
                     {{"equal", false}, {"measured", true}}),
     .help = "division of large sums among ranks; measured: less over slow links",
     .example = "--slices measured",
     .demands = {{is("measured"),
                  {is("reduction-order", "fast"), off("reduction-order")},
                  "--reduction-order fast: canonical order has an exchange of its own"},
                 {is("measured"),
                  {off("shard-optimizer")},
                  "whole sums, without --shard-optimizer, which fixes each rank's slice"}}},
    {.name = "encrypt",
     .field = choice([](RunConfig& c) { return &c.group.links.encryption; },
                     {{"auto", backends::Encryption::kAuto},
                      {"on", backends::Encryption::kOn},
                      {"off", backends::Encryption::kOff}}),
     .help = "encrypt connections between ranks (auto: if an address of the job is public)",
     .example = "--encrypt on"},
    {.name = "relay",
     .field = parsed(take_relay),
     .metavar = "HOST:PORT",
     .help = "relay for ranks that cannot reach each other (rank0:PORT: rank 0 relays)",
     .example = "--relay rank0:29600",
     .on_resume = kOneStart,
     .demands = {{given(),
                  {off("elastic")},
                  "no --elastic, whose hosts must all reach each other: leave it out"}}},
    {.name = "init-method",
     .field = text([](RunConfig& c) { return &c.identity.init_method; }),
     .metavar = "URL",
     .initial = "env://",
     .help = "rendezvous: env://, tcp://HOST:PORT or file:///PATH",
     .example = "--init-method tcp://n1:29500",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "iface",
     .field = text([](RunConfig& c) { return &c.group.listen.interface; }),
     .metavar = "IF",
     .help = "network interface (default: the one that routes to rank 0)",
     .example = "--iface eth0",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "port-rule",
     .field = choice([](RunConfig& c) { return &c.identity.port_rule; },
                     {{"auto", backends::PortRule::kAuto},
                      {"idr", backends::PortRule::kIdr},
                      {"jobid", backends::PortRule::kJobId},
                      {"fixed", backends::PortRule::kFixed}}),
     .help = "port of env:// without MASTER_PORT",
     .example = "--port-rule jobid",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "job-id",
     .field = text([](RunConfig& c) { return &c.identity.job_id; }),
     .metavar = "ID",
     .help = "name of the job, to distinguish jobs on a host",
     .example = "--job-id night-7",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "rank",
     .field = integer([](RunConfig& c) { return &c.identity.rank; }, 0, kMaxRanks - 1),
     .metavar = "R",
     .help = "this process's rank, from 0",
     .example = "--rank 0 --world-size 2",
     .agreement = kFree,
     .on_resume = kOneStart,
     .needs = {given("world-size")},
     .demands = {{given(), {off("elastic")}, kNoElastic}}},
    {.name = "world-size",
     .field = integer([](RunConfig& c) { return &c.identity.world_size; }, 1, kMaxRanks),
     .metavar = "W",
     .help = "number of ranks",
     .example = "--rank 0 --world-size 2",
     .agreement = kFree,
     .on_resume = kOneStart,
     .demands = {{given(), {off("elastic")}, kNoElastic}}},
    {.name = "local-rank",
     .field = integer([](RunConfig& c) { return &c.identity.local_rank; }, 0, kMaxRanks - 1),
     .metavar = "L",
     .help = "this process's index on its host",
     .example = "--rank 3 --world-size 4 --local-rank 1",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "spawn",
     .field = parsed(take_spawn),
     .metavar = "[N]",
     .initial = "0",
     .help = "start N ranks on this host; without N: one per GPU, else one per core (default: "
             "one process)",
     .example = "--spawn 4",
     .agreement = kFree,
     .excludes = {"rank", "world-size", "local-rank", "init-method"}},
    {.name = "elastic",
     .field = parsed(take_elastic),
     .metavar = "[MIN:MAX]",
     .help = "ranks may join and leave while MIN are alive (with --spawn N: 1:N)",
     .example = "--spawn 4 --elastic",
     .demands = {{on(),
                  {is("uneven", "join")},
                  "--uneven join: drop and pad depend on the number of ranks"},
                 {on(),
                  {is("sync", "grad|params|post-local|slowmo|diloco|streaming|gossip|auto")},
                  "replicas that are averaged: --sync none keeps them apart"}}},
    {.name = "elastic-batch",
     .field = choice([](RunConfig& c) { return &c.data.batch_scales; },
                     {{"keep", false}, {"scale", true}}),
     .help = "keep: the global batch of MAX ranks; scale: batch and learning rate follow the "
             "ranks",
     .example = "--elastic 2:4 --elastic-batch scale",
     .needs = {given("elastic")},
     .demands = {{is("scale"),
                  {is("reduction-order", "fast"), off("elastic"), off("reduction-order")},
                  "--reduction-order fast: in canonical order the batch is the same for any "
                  "number of ranks"}}},
    {.name = "rdzv-timeout",
     .field = seconds([](RunConfig& c) { return &c.group.rendezvous_timeout_ms; }),
     .metavar = "S",
     .help = "seconds to wait until all ranks have joined, and then connected",
     .example = "--rdzv-timeout 60",
     .agreement = kFree},
    {.name = "timeout",
     .field = seconds([](RunConfig& c) { return &c.group.timeout_ms; }),
     .metavar = "S",
     .help = "time limit of a collective in seconds",
     .example = "--timeout 120",
     .agreement = kFree},
    {.name = "heartbeat",
     .field = seconds([](RunConfig& c) { return &c.group.heartbeat_ms; }),
     .metavar = "S",
     .help = "seconds between heartbeats; a rank that misses three is dead",
     .example = "--heartbeat 0.5",
     .agreement = kFree},
    {.name = "link-patience",
     .field = seconds([](RunConfig& c) { return &c.group.links.patience_ms; }, /*or_zero=*/true),
     .metavar = "S",
     .help = "connect again for S seconds after a connection between ranks broke (0: never)",
     .example = "--link-patience 120",
     .excludes = {"elastic"}},
    {.name = "stall-after",
     .field = seconds([](RunConfig& c) { return &c.group.stall.after_ms; }, /*or_zero=*/true),
     .metavar = "S",
     .help = "report who waits for whom after S seconds in a collective (0: never)",
     .example = "--stall-after 30",
     .agreement = kFree},
    {.name = "stall-abort",
     .field = flag([](RunConfig& c) { return &c.group.stall.abort; }),
     .help = "end the job when a collective takes longer than --stall-after",
     .example = "--stall-abort",
     .agreement = kFree}};

}  // namespace

OptionGroup group_rows() { return {"group", kGroupRows, &check_group}; }

}  // namespace tools
