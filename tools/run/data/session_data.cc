// Implements staging, loading, and the ranks' shares.
#include "tools/run/data/session_data.h"

#include <algorithm>

#include "backends/identity/host_layout.h"
#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/memory_text.h"
#include "io/base/text/text_parts.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/loader/staging.h"
#include "io/data/sources/dataset_registry.h"
#include "io/data/sources/loading_memory.h"
#include "tools/launch/group/rank_exchange.h"
#include "tools/launch/machine/memory_info.h"
#include "tools/run/choices/agreement.h"

namespace tools {
namespace {

// One rank per host copies, and all ranks wait.
io::DatasetOptions staged(const DataOptions& data, const backends::Group& group,
                          backends::Communicator& control) {
  io::DatasetOptions options = data.set;
  if (data.stage.empty()) return options;
  std::string& source =
      options.csv.annotations.empty() ? options.directory : options.csv.annotations;
  const bool first = backends::host_layout(group).place == 0;
  run_on_all_ranks(group, control, [&] {
    if (first) io::stage_files(source, data.stage);
  });
  source = io::staged_path(source, data.stage);
  return options;
}

// Checks the memory for the given number of ranks that load on this host.
void check_room(const io::DatasetOptions& set, std::uint64_t bytes, std::int64_t ranks,
                const std::optional<AvailableMemory>& left) {
  if (!left || bytes * static_cast<std::uint64_t>(ranks) <= left->bytes) return;
  throw engine::MemoryError(
      "out of memory: loading " + set.name + " needs " + base::memory_text(bytes) +
      (ranks == 1 ? "" : " for each of " + std::to_string(ranks) + " ranks of this host") +
      ", but " + base::memory_text(left->bytes) + " are available" +
      (left->by ? ", of the " + base::memory_text(left->by->bytes) + " that " + left->by->file +
                      " allows"
                : " on this host"));
}

// Collective. All ranks check the available memory before any of them allocates; ranks that have
// their data need no more.
void check_room_collectively(const io::DatasetOptions& set, bool loads,
                             const backends::Group& group, backends::Communicator& control) {
  const std::string& host = group.peers().at(static_cast<std::size_t>(group.rank())).host_id;
  const std::optional<AvailableMemory> left = available_memory();
  const std::vector<std::string> loading = gather_texts(control, loads ? host : "");
  run_on_all_ranks(group, control, [&] {
    if (loads) check_room(set, io::loading_bytes(set), std::ranges::count(loading, host), left);
  });
}

// Sets the ranks' shares of a step. Those of local steps follow the averaging policy, by the
// trainer.
void set_shares(const DataOptions& data, io::SamplerOptions& sampling) {
  const bool local = !data.local_steps.are_equal();
  const ShareOptions& shares = local ? data.local_steps : data.shares;
  sampling.shares_change = (shares.automatic || local) && sampling.world_size > 1;
  if (shares.weights.empty()) return;
  const auto weights = std::ssize(shares.weights);
  if (weights != sampling.world_size)
    throw io::ConfigError((local ? "--local-steps has " : "--shares has ") +
                          std::to_string(weights) + (weights == 1 ? " weight" : " weights") +
                          ", but the world is of " + std::to_string(sampling.world_size) +
                          (sampling.world_size == 1 ? " rank" : " ranks") +
                          ": expected a weight for each rank, as 3:1");
  if (!local) sampling.shares = io::BatchShares(shares.weights);
}

io::SamplerOptions shares(const DataOptions& data, std::int64_t micro_batches,
                          const backends::Group& group, const io::Dataset& train,
                          const io::EpochOrder* order) {
  if (train.size() == 0)
    throw io::DataError("data set '" + train.name + "' has no training samples");
  io::SamplerOptions sampling = data.sampling;
  const int most = data.max_ranks > 0 ? data.max_ranks : group.world_size();
  if (data.batch_of_rank > 0) sampling.global_batch = data.batch_of_rank * micro_batches * most;
  if (data.batch_scales) sampling.global_batch = sampling.global_batch / most * group.world_size();
  sampling.size = train.size();
  sampling.rank = group.rank();
  sampling.world_size = group.world_size();
  sampling.order = order;
  set_shares(data, sampling);
  return sampling;
}

bool is_empty(const LoadedData& loaded) {
  return loaded.splits.train.size() == 0 && loaded.splits.test.size() == 0;
}

}  // namespace

io::DataDigest data_digest(const io::DatasetSplits& splits) {
  return io::data_digest(splits.train, splits.coding.get());
}

std::string test_data_digest(const io::DatasetSplits& splits) {
  if (splits.test.size() == 0) return "";
  return io::data_digest(splits.test, splits.coding.get()).text;
}

engine::Shape sample_shape(const io::Dataset& dataset) {
  return engine::Shape(dataset.model_shape());
}

std::optional<engine::Shape> label_shape(const io::Dataset& dataset) {
  if (dataset.find<io::ArraySamples>() == nullptr) return std::nullopt;
  return engine::Shape(dataset.label_shape());
}

io::Normalization normalization(const DataOptions& options, const io::Dataset& dataset) {
  if (options.normalization) return *options.normalization;
  return dataset.shape()[2] == 1 ? io::Normalization::kUnit : io::Normalization::kStandard;
}

std::vector<std::string> class_names(const io::Dataset& set) {
  std::vector<std::string> names = set.class_names();
  for (const char byte : set.vocabulary()) names.push_back(base::escape_text(std::string(1, byte)));
  if (names.empty())
    for (std::int64_t c = 0; c < set.classes(); ++c) names.push_back(std::to_string(c));
  return names;
}

void read_for_training(const io::DatasetOptions& options, LoadedData& loaded) {
  loaded.splits = io::load_dataset(options);
  if (!options.coding) return;
  io::DatasetSplits& splits = loaded.splits;
  if (!splits.train.unknown_classes().empty() || !splits.test.unknown_classes().empty())
    throw io::DataError(base::join_text(splits.unknown, "; ") + ", " + options.coding->source +
                        ": give data of its classes, or for a new last layer --init-from with "
                        "--init-coding inputs (and --allow-mismatch where its shape changes)");
  const std::string& digest = options.coding->digest;
  if (splits.unknown.empty() || (!digest.empty() && data_digest(splits).is(digest))) return;
  splits.warnings.insert(splits.warnings.end(), splits.unknown.begin(), splits.unknown.end());
}

std::shared_ptr<LoadedData> load_collectively(const DataOptions& options,
                                              const backends::Group& group,
                                              backends::Communicator& control,
                                              std::shared_ptr<LoadedData> before,
                                              const DataReader& read) {
  const io::DatasetOptions set = staged(options, group, control);
  if (!before) before = options.given;
  auto loaded = before ? std::move(before) : std::make_shared<LoadedData>();
  check_room_collectively(set, is_empty(*loaded), group, control);
  run_on_all_ranks(group, control, [&] {
    if (is_empty(*loaded)) read(set, *loaded);
  });
  if (group.world_size() == 1) return loaded;
  const char* what = "the ranks have read different data";
  require_equal(group, control, extent_of(loaded->splits), what);
  if (loaded->content.empty()) {
    loaded->digest = data_digest(loaded->splits);
    loaded->content = content_of(loaded->splits, loaded->digest.text);
  }
  require_equal(group, control, loaded->content, what);
  return loaded;
}

std::shared_ptr<LoadedData> load_alone(const DataOptions& options) {
  if (!options.stage.empty()) return nullptr;
  auto loaded = std::make_shared<LoadedData>();
  check_room(options.set, io::loading_bytes(options.set), 1, available_memory());
  read_for_training(options.set, *loaded);
  return loaded;
}

SessionData::SessionData(const DataOptions& options, std::int64_t micro_batches,
                         const backends::Group& group, backends::Communicator& control,
                         std::shared_ptr<LoadedData> before)
    : loaded_(load_collectively(options, group, control, std::move(before))),
      normalization_(tools::normalization(options, loaded_->splits.train)),
      order_(options.sampling.shuffle ? io::make_epoch_order(options.order, loaded_->splits.train)
                                      : nullptr),
      sampling_(shares(options, micro_batches, group, loaded_->splits.train, order_.get())),
      sampler_(sampling_),
      partition_(options.check_sampler ? std::optional(io::check_partition(sampling_))
                                       : std::nullopt) {}

}  // namespace tools
