// Copies targets to batches.
#include "io/data/labels/target_values.h"

#include <cstddef>

#include "io/data/labels/stratified_choice.h"
#include "io/data/samples/keep_chosen.h"

namespace io {
namespace {

class CopiedTargets : public BatchPart {
 public:
  explicit CopiedTargets(const TargetValues& targets) : targets_(targets) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.targets.resize(samples);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    for (std::size_t i = 0; i < ids.size(); ++i)
      memory.targets[i] = targets_.values[static_cast<std::size_t>(ids[i])];
    memory.batch.targets = std::span(memory.targets).first(ids.size());
  }

 private:
  const TargetValues& targets_;
};

}  // namespace

void TargetValues::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(values)));
  digest.add(std::as_bytes(std::span(&scale.mean, 1)));
  digest.add(std::as_bytes(std::span(&scale.deviation, 1)));
}

// For this choice, all targets count as one class.
std::vector<std::int64_t> TargetValues::choose(std::int64_t wanted, std::uint64_t seed) const {
  return stratified_positions(std::vector<std::int32_t>(values.size(), 0), wanted, seed);
}

void TargetValues::keep(std::span<const std::int64_t> chosen) { keep_chosen(values, 1, chosen); }

std::unique_ptr<BatchPart> TargetValues::batch_part(const std::string&, const Samples&) const {
  return std::make_unique<CopiedTargets>(*this);
}

}  // namespace io
