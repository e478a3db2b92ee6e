// Schedules of averaging, outer optimizers, compression.
#include "tools/options/sync_options.h"

#include <cmath>
#include <limits>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

// "0:1,1000:8": from step 0 every step, from step 1000 every 8th.
void read_schedule(const ValueReader& read, RunConfig& config) {
  if (read.text("sync-schedule").empty()) return;
  const char* expected =
      "STEP:K,STEP:K,... with ascending steps from 0 and each K 1 or more, as 0:1,1000:8";
  std::int64_t last = -1;
  for (const std::string& phase : base::split_text(read.text("sync-schedule"), ',')) {
    const std::vector<std::string> parts = base::split_text(phase, ':');
    const auto from = parts.size() == 2 ? parse_integer(parts[0]) : std::nullopt;
    const auto every = parts.size() == 2 ? parse_integer(parts[1]) : std::nullopt;
    if (!from || !every || *from <= last || *from > kMostCount || *every < 1 || *every > kMostCount)
      read.refuse("sync-schedule", expected);
    config.sync_schedule.push_back({last = *from, *every});
  }
  if (config.sync == "params" && config.sync_schedule.front().from != 0)
    read.refuse(
        "sync-schedule",
        "its first step to be 0 with --sync params (post-local averages gradients before it)");
}

}  // namespace

void read_sync(const ValueReader& read, RunConfig& config) {
  const double below_one = std::nextafter(1.0, 0.0);
  config.sync = read.text("sync");
  if (config.most_ranks > 0 && config.sync == "none")
    read.demand("elastic", "replicas that are averaged: --sync none keeps them apart");
  config.sync_every = read.integer("sync-every", 1, kMostCount, 1);
  config.sync_warmup = read.integer("sync-warmup", 0, kMostCount, 0);
  read_schedule(read, config);
  config.sync_island = read.text("sync-island");
  config.average_state = read.text("average-state");
  config.average_buffers = read.flag("average-buffers");
  config.outer_lr = read.positive("outer-lr", 1e6, config.outer_lr);
  config.outer_momentum = read.real("outer-momentum", 0, below_one, config.outer_momentum,
                                    "a number from 0 to below 1");
  config.outer_nesterov = read.flag("outer-nesterov") && config.outer_momentum > 0;
  config.slowmo_alpha = read.positive("slowmo-alpha", 1e6, config.slowmo_alpha);
  config.slowmo_beta =
      read.real("slowmo-beta", 0, below_one, config.slowmo_beta, "a number from 0 to below 1");
  config.compress = read.text("compress");
  config.topk_ratio = read.positive("topk-ratio", 1, config.topk_ratio);
  config.powersgd_rank = read.small("powersgd-rank", 1, 1024, config.powersgd_rank);
  config.bucket_cap_mb = read.positive("bucket-cap-mb", 65536, config.bucket_cap_mb);
  config.delay_allreduce = read.flag("delay-allreduce");
  config.shard_optimizer = read.flag("shard-optimizer");
  if (config.shard_optimizer && config.most_ranks > 0)
    read.demand("shard-optimizer",
                "ranks that stay, without --elastic: a rank that is lost takes its share of the "
                "optimizer's state with it");

  const bool begins_later = !config.sync_schedule.empty() && config.sync_schedule.front().from > 0;
  if (config.sync == "post-local" && config.sync_warmup == 0 && !begins_later)
    read.demand("sync", "--sync-warmup W above 0, or a --sync-schedule that begins after step 0");
  if (config.average_buffers && config.buffers == "rank0")
    read.demand("average-buffers", "--buffers local or average, not rank0");
}

}  // namespace tools
