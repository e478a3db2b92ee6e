// The data of a run: which set, which samples a rank takes, how they are prepared.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "backends/store/protocol/settings.h"
#include "engine/core/shape.h"
#include "io/data/order/epoch_order.h"
#include "io/data/sources/data_digest.h"
#include "tools/options/table/session_options.h"

namespace tools {

// Of one sample, as models take it: [h, w, c], or [context] for tokens.
engine::Shape sample_shape(const io::Dataset& dataset);
io::Normalization normalization(const DataOptions& options, const io::Dataset& dataset);
// "0", "1" ... where the data name no classes; of text the characters, made visible.
std::vector<std::string> class_names(const io::Dataset& dataset);
// The digest of the training part.
io::DataDigest data_digest(const io::DatasetSplits& splits);

struct LoadedData {
  io::DatasetSplits splits;
  io::DataDigest digest;       // of the training part; "" with a single rank, who needs none
  backends::Settings content;  // content_of() it; likewise
  bool hold_out = false;       // not the data of the run whose model is judged
};
// Reads what options say. Throws what io/data throws.
using DataReader = std::function<void(const io::DatasetOptions& options, LoadedData& loaded)>;
// io::load_dataset(). Throws io::DataError where a coding (DatasetOptions) lacks classes that the
// data have: a model cannot be trained on them.
void read_for_training(const io::DatasetOptions& options, LoadedData& loaded);

// Collective over `control`. What this rank has loaded `before`, or
// was given, is not loaded. With
// DataOptions::stage the lowest rank of each host copies what is missing, the others wait as long
// as a collective may take, and the copies are read. All ranks have the same data then, or all
// fail: with what io/data throws (on the other ranks: engine::RemoteError), or with
// engine::DesyncError, which names what differs.
std::shared_ptr<LoadedData> load_together(const DataOptions& options, const backends::Group& group,
                                          backends::Communicator& control,
                                          std::shared_ptr<LoadedData> before = nullptr,
                                          const DataReader& read = read_for_training);

// Without any other rank: what load_together() would load, for it; nothing where the data have to
// be staged first. Throws what io/data throws.
std::shared_ptr<LoadedData> load_alone(const DataOptions& options);

class SessionData {
 public:
  // Collective. Loads as above. `micro_batches` of a rank count for DataOptions::batch_of_rank.
  // Throws what load_together() throws, and io::DataError for an empty set.
  SessionData(const DataOptions& options, std::int64_t micro_batches, const backends::Group& group,
              backends::Communicator& control, std::shared_ptr<LoadedData> before = nullptr);
  // For another session.
  const std::shared_ptr<LoadedData>& loaded() const { return loaded_; }

  const io::Dataset& train() const { return loaded_->splits.train; }
  const io::Dataset& test() const { return loaded_->splits.test; }
  const io::DatasetSplits& splits() const { return loaded_->splits; }
  const io::DataDigest& digest() const { return loaded_->digest; }  // as LoadedData has it
  const io::SamplerOptions& sampling() const { return sampling_; }
  const io::Sampler& sampler() const { return sampler_; }
  std::int64_t global_batch() const { return sampling_.global_batch; }
  io::Normalization normalization() const { return normalization_; }
  const std::optional<io::PartitionCheck>& partition() const { return partition_; }

 private:
  const std::shared_ptr<LoadedData> loaded_;
  const io::Normalization normalization_;
  const std::unique_ptr<io::EpochOrder> order_;  // null: the sampler's own
  const io::SamplerOptions sampling_;
  const io::Sampler sampler_;
  const std::optional<io::PartitionCheck> partition_;  // of --check-sampler
};

}  // namespace tools
