// One rank of a host copies, all of them wait.
#include "tools/session/data_staging.h"

#include <algorithm>

#include "io/data/loader/staging.h"
#include "tools/session/data_choice.h"

namespace tools {

io::DatasetOptions stage_dataset(const tools::RunConfig& config, const backends::Group& group,
                                 backends::Communicator& control) {
  io::DatasetOptions options = dataset_options(config);
  if (config.stage.empty()) return options;
  std::string& source = options.annotations.empty() ? options.directory : options.annotations;
  const auto& peers = group.peers();
  const auto is_self = [&](const backends::PeerInfo& peer) { return peer.rank == group.rank(); };
  const auto self = std::find_if(peers.begin(), peers.end(), is_self);
  const bool first = std::none_of(peers.begin(), peers.end(), [&](const backends::PeerInfo& peer) {
    return peer.rank < group.rank() && self != peers.end() && peer.host_id == self->host_id;
  });
  if (first) io::stage_files(source, config.stage);
  if (group.world_size() > 1) control.barrier();
  source = io::staged_path(source, config.stage);
  return options;
}

}  // namespace tools
