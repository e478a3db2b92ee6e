// Predicts in rounds of one block per rank.
#include "tools/commands/predict/distributed_prediction.h"

#include <algorithm>
#include <exception>
#include <string>

#include "io/base/files/io_error.h"
#include "tools/run/choices/agreement.h"

namespace tools {
namespace {

constexpr std::int64_t kFailed = -1;

// The numbers of every rank's block, in rank order.
template <class T>
class Gathered {
 public:
  Gathered(std::size_t of_block, std::size_t world) : own_(of_block), all_(of_block * world) {}

  void gather(const std::vector<T>& numbers, backends::Communicator& control) {
    if (own_.empty()) return;
    std::ranges::copy(numbers, own_.begin());
    control.all_gather(own_.data(), own_.size() * sizeof(T), all_.data());
  }
  std::vector<T> of(std::size_t rank, std::size_t count) const {
    const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(rank * own_.size());
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  std::vector<T> own_, all_;
};

}  // namespace

void predict_distributed(const backends::Group& group, backends::Communicator& control,
                         const BlockSizes& sizes,
                         const std::function<PredictedBlock(bool own)>& next,
                         const std::function<void(const PredictedBlock& block)>& write) {
  const auto world = static_cast<std::size_t>(group.world_size()),
             rank = static_cast<std::size_t>(group.rank());
  std::vector<PredictedBlock> round(world);
  std::vector<std::int64_t> counts(world);  // number of samples in each rank's block
  Gathered<double> logits(sizes.samples * sizes.logits, world);
  Gathered<float> watched(sizes.samples * sizes.watched, world);
  do {
    std::exception_ptr failure;
    std::size_t taken = 0;
    try {
      for (; taken < world; ++taken) round[taken] = next(taken == rank);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    const std::int64_t own = taken > rank ? std::ssize(round[rank].origins) : kFailed;
    control.all_gather(&own, sizeof own, counts.data());
    logits.gather(own > 0 ? round[rank].logits : std::vector<double>{}, control);
    watched.gather(own > 0 ? round[rank].watched : std::vector<float>{}, control);
    run_on_all_ranks(group, control, [&] {
      for (std::size_t r = 0; rank == 0 && r < taken && counts[r] != kFailed; ++r) {
        PredictedBlock& block = round[r];
        if (counts[r] != std::ssize(block.origins))
          throw io::DataError("the ranks read different inputs: rank " + std::to_string(r) +
                              " has " + std::to_string(counts[r]) +
                              " samples of a block in which rank 0 has " +
                              std::to_string(block.origins.size()));
        if (block.origins.empty()) continue;
        block.logits = logits.of(r, block.origins.size() * sizes.logits);
        block.watched = watched.of(r, block.origins.size() * sizes.watched);
        write(block);
      }
      if (failure) std::rethrow_exception(failure);
    });
  } while (counts.back() > 0);
}

}  // namespace tools
