// Implements orders other than the plain permutation, and the check that the ranks' samples
// partition an epoch.
#include "io/data/order/epoch_order.h"

#include <algorithm>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/data/labels/label_range.h"

namespace io {
namespace {

// Sample j of the n samples of a class has position (j + u) / n in the epoch, with the samples of
// the class in a newly drawn order and one u in [0, 1) per class. So the n samples are spaced
// evenly over the epoch; sorting all samples by position interleaves the classes. The offset u
// keeps classes of equal size from always appearing in the same order.
class Stratified final : public EpochOrder {
 public:
  explicit Stratified(const ClassLabels& labels) : labels_(labels) {}

  void fill(std::uint64_t seed, std::int64_t epoch, std::span<std::int64_t> order) const override {
    std::vector<std::vector<std::int64_t>> by_class(static_cast<std::size_t>(labels_.count));
    for (std::size_t id = 0; id < order.size(); ++id)
      by_class.at(static_cast<std::size_t>(labels_.ids[id]))
          .push_back(static_cast<std::int64_t>(id));
    struct Place {
      double at;
      std::int64_t id;
    };
    std::vector<Place> places;
    places.reserve(order.size());
    for (std::size_t c = 0; c < by_class.size(); ++c) {
      std::vector<std::int64_t>& ids = by_class[c];
      SplitMix random(seed, static_cast<std::uint64_t>(epoch), c + 1);
      const double offset = static_cast<double>(random.next() >> 11) * 0x1p-53;
      for (std::size_t i = ids.size(); i > 1; --i)
        std::swap(ids[i - 1], ids[random.below(static_cast<std::uint32_t>(i))]);
      for (std::size_t j = 0; j < ids.size(); ++j)
        places.push_back(
            {(static_cast<double>(j) + offset) / static_cast<double>(ids.size()), ids[j]});
    }
    std::ranges::sort(places, [](const Place& a, const Place& b) {
      return a.at != b.at ? a.at < b.at : a.id < b.id;
    });
    std::ranges::transform(places, order.begin(), &Place::id);
  }

 private:
  const ClassLabels& labels_;
};

const char* promised(Uneven uneven) {
  return uneven == Uneven::kJoin   ? "once"
         : uneven == Uneven::kDrop ? "once at most"
                                   : "once at least";
}

}  // namespace

std::unique_ptr<EpochOrder> make_epoch_order(const std::string& name, const Dataset& dataset) {
  if (name == "shuffle") return nullptr;
  if (name != "stratified")
    throw ConfigError("unknown sampler '" + name + "' (known: shuffle, stratified)");
  const ClassLabels* const labels = dataset.find<ClassLabels>();
  if (labels == nullptr)
    throw ConfigError("--sampler stratified mixes classes, but the labels of data set " +
                      dataset.name + " are " + dataset.label_traits().labels);
  const LabelRange range{.set = dataset.name, .classes = labels->count};
  for (std::size_t i = 0; i < labels->ids.size(); ++i)
    static_cast<void>(range.checked(labels->ids[i], static_cast<std::int64_t>(i)));
  return std::make_unique<Stratified>(*labels);
}

PartitionCheck check_partition(const SamplerOptions& options) {
  PartitionCheck found{.epochs = 2};
  for (std::int64_t epoch = 0; epoch < found.epochs; ++epoch) {
    std::vector<std::int64_t> times(static_cast<std::size_t>(options.size), 0);
    for (int rank = 0; rank < options.world_size; ++rank) {
      SamplerOptions share = options;
      share.rank = rank;
      Sampler sampler(share);
      sampler.set_epoch(epoch);
      for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
        for (const std::int64_t id : sampler.indices(step))
          if (id < 0 || id >= options.size)
            throw DataError("the sampler gives sample " + std::to_string(id) + " in epoch " +
                            std::to_string(epoch) + ", but the data set has 0.." +
                            std::to_string(options.size - 1));
          else
            ++times[static_cast<std::size_t>(id)];
    }
    const auto wrong = std::ranges::find_if(times, [&](std::int64_t n) {
      return (options.uneven != Uneven::kDrop && n < 1) ||
             (options.uneven != Uneven::kPad && n > 1);
    });
    if (wrong != times.end())
      throw DataError("the sampler gives sample " + std::to_string(wrong - times.begin()) + " " +
                      std::to_string(*wrong) + " times in epoch " + std::to_string(epoch) +
                      " over " + std::to_string(options.world_size) + " ranks, expected " +
                      promised(options.uneven));
    found.left_out = std::ranges::count(times, 0);
    found.repeated = std::ranges::count_if(times, [](std::int64_t n) { return n > 1; });
  }
  return found;
}

}  // namespace io
