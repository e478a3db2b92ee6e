// Loads the data of a run, selects the samples of a rank, and prepares them.
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

// Returns the shape of one sample in the models' layout: [h, w, c], or [context] for tokens.
engine::Shape sample_shape(const io::Dataset& dataset);
// Returns the shape of a sample's labels; none if that follows from the kind of samples.
std::optional<engine::Shape> label_shape(const io::Dataset& dataset);
io::Normalization normalization(const DataOptions& options, const io::Dataset& dataset);
// Returns "0", "1" ... if the data have no class names; for text the characters, made visible.
std::vector<std::string> class_names(const io::Dataset& dataset);
// Returns the digest of the training part.
io::DataDigest data_digest(const io::DatasetSplits& splits);
// Returns the digest of the test part; "" without test samples.
std::string test_data_digest(const io::DatasetSplits& splits);

struct DataSummary {
  io::DataDigest digest;             // digest of the training samples and labels
  std::string test_digest;           // the same of the test samples; "": there are none
  std::int64_t train = 0, test = 0;  // samples
};

struct LoadedData {
  io::DatasetSplits splits;
  io::DataDigest digest;  // digest of the training part; "" with a single rank, which needs none
  backends::Settings content;  // content_of() it; empty with a single rank
  bool hold_out = false;       // the data are not those of the evaluated model's run
};
// Reads the data of the options. Throws as io/data does.
using DataReader = std::function<void(const io::DatasetOptions& options, LoadedData& loaded)>;
// Calls io::load_dataset(). Throws io::DataError if a coding (DatasetOptions) lacks classes that
// the data have, because a model cannot be trained on them.
void read_for_training(const io::DatasetOptions& options, LoadedData& loaded);

// Collective over `control`. Does not load data that this rank has from `before`, or was given.
// With DataOptions::stage the lowest rank of each host copies missing files, the others wait as
// long as a collective may take, and all read the copies. Afterwards all ranks have the same data,
// or all fail: with the exceptions of io/data (engine::RemoteError on the other ranks), or with
// engine::DesyncError that names the difference.
std::shared_ptr<LoadedData> load_collectively(const DataOptions& options,
                                              const backends::Group& group,
                                              backends::Communicator& control,
                                              std::shared_ptr<LoadedData> before = nullptr,
                                              const DataReader& read = read_for_training);

// Loads, without any other rank, the data that load_collectively() would load, and can be passed to
// it; nothing if the data have to be staged first. Throws as io/data does.
std::shared_ptr<LoadedData> load_alone(const DataOptions& options);

class SessionData {
 public:
  // Collective. Loads as above. `micro_batches` per rank are used for DataOptions::batch_of_rank.
  // Throws as load_collectively() does, and io::DataError for an empty set.
  SessionData(const DataOptions& options, std::int64_t micro_batches, const backends::Group& group,
              backends::Communicator& control, std::shared_ptr<LoadedData> before = nullptr);
  // Returns the data for another session.
  const std::shared_ptr<LoadedData>& loaded() const { return loaded_; }

  const io::Dataset& train() const { return loaded_->splits.train; }
  const io::Dataset& test() const { return loaded_->splits.test; }
  const io::DatasetSplits& splits() const { return loaded_->splits; }
  const io::DataDigest& digest() const { return loaded_->digest; }  // as in LoadedData
  const io::SamplerOptions& sampling() const { return sampling_; }
  const io::Sampler& sampler() const { return sampler_; }
  io::Sampler& sampler() { return sampler_; }
  std::int64_t global_batch() const { return sampling_.global_batch; }
  io::Normalization normalization() const { return normalization_; }
  const std::optional<io::PartitionCheck>& partition() const { return partition_; }

 private:
  const std::shared_ptr<LoadedData> loaded_;
  const io::Normalization normalization_;
  const std::unique_ptr<io::EpochOrder> order_;  // null: the sampler's own order
  const io::SamplerOptions sampling_;
  io::Sampler sampler_;
  const std::optional<io::PartitionCheck> partition_;  // for --check-sampler
};

}  // namespace tools
