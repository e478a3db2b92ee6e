// Connects ranks as the averaging of a session needs it.
#include "tools/run/parts/session_communicators.h"

#include <string>

#include "engine/averaging/policies/gossip_pairs.h"
#include "engine/averaging/statistics/replica_statistics.h"
#include "engine/core/cuda.h"
#include "io/base/files/io_error.h"
#include "models/model_catalog.h"
#include "tools/run/choices/averaging_choice.h"

namespace tools {
namespace {

std::unique_ptr<backends::DeviceCommunicator> make_device_wire(
    const SessionOptions& options, const Compute& compute, backends::Group& group,
    const std::vector<int>& members = {}) {
  const bool chosen = options.asked_backend == "nccl" || options.asked_backend == "auto";
  if (!compute.cuda() || group.world_size() == 1 || !chosen) return nullptr;
  if (group.backend() == "inproc" && options.compute.device.devices.size() < 2)
    return nullptr;  // threads that share one device
  engine::cuda::use_device(compute.device.index);
  auto communicator =
      group.make_device_communicator({.backend = options.asked_backend, .members = members});
  if (communicator->name() != "nccl") communicator.reset();
  return communicator;
}

// Returns true if the model may have layers that exchange batch statistics on the device. The model
// is not built yet. In elastic jobs they pass through host memory: a wait for sums of gradients
// does not notice an error of the communicator of statistics before the deadline.
bool exchanges_on_device(const SessionOptions& options) {
  if (options.data.max_ranks > 0) return false;
  const ModelRequest& model = options.model;
  if (model.synchronized_statistics) return true;
  const std::string definition =
      model.definition.empty() ? models::model_definition(model.name) : model.definition;
  return definition.find("sync_batch_norm2d") != std::string::npos;
}

}  // namespace

DeviceCommunicators::DeviceCommunicators(const SessionOptions& options, const Compute& compute,
                                         backends::Group& group)
    : gradients(options.averaging.method == AveragingOptions::Method::kGradients
                    ? make_device_wire(options, compute, group)
                    : nullptr),
      parameters(sums_parameters_on_devices(options.averaging)
                     ? make_device_wire(options, compute, group)
                     : nullptr),
      statistics(gradients && exchanges_on_device(options)
                     ? make_device_wire(options, compute, group)
                     : nullptr) {
  if (options.averaging.method != AveragingOptions::Method::kGossip || !parameters) return;
  const auto connect = [&](const std::vector<int>& members) {
    return make_device_wire(options, compute, group, members);
  };
  const int ranks = group.world_size(), self = group.rank();
  if (group.backend() != "inproc") {
    pairs = engine::connect_pairs(ranks, self, connect);
    return;
  }
  const auto meeting = host_communicator(group);
  pairs = engine::connect_pairs_sequentially(ranks, self, connect, [&] { meeting->barrier(); });
}

SessionCommunicators::SessionCommunicators(const SessionOptions& options, backends::Group& group,
                                           const engine::Graph& graph,
                                           const DeviceCommunicators& on_devices)
    : island(island_ranks(options.averaging, group)),
      averaging(host_communicator(group)),
      device_pairs(on_devices.pairs),
      device(on_devices.gradients.get()),
      device_averaging(on_devices.parameters.get()),
      device_statistics(on_devices.statistics.get()) {
  if (options.averaging.host_islands && group.world_size() > 1)
    within_island = host_communicator(group, island);
  if (options.averaging.method == AveragingOptions::Method::kGossip)
    pairs = engine::connect_pairs(
        group.world_size(), group.rank(),
        [&group](const std::vector<int>& members) { return host_communicator(group, members); });
  if (group.world_size() == 1 || layers_that_use_replicas(graph) == 0) return;
  if (options.averaging.stale.max_behind > 0)
    throw io::ConfigError(
        "--stale needs a model without sync_batch_norm2d: its statistics need all ranks in every "
        "step, and late ranks skip steps");
  statistics = host_communicator(group);
  replicas = engine::make_rank_statistics(*statistics);
}

}  // namespace tools
