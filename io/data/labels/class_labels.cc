// Checks labels when they are copied to a batch.
#include "io/data/labels/class_labels.h"

#include <cstddef>

#include "io/data/labels/label_range.h"
#include "io/data/labels/stratified_choice.h"
#include "io/data/samples/keep_chosen.h"

namespace io {
namespace {

class CopiedClasses : public BatchPart {
 public:
  CopiedClasses(const std::string& set, const ClassLabels& labels)
      : labels_(labels), range_{set, labels.count, std::ssize(labels.unknown)} {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.labels.resize(samples);
    if (!labels_.weights.empty()) memory.weights.resize(samples);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    for (std::size_t i = 0; i < ids.size(); ++i)
      memory.labels[i] = range_.checked(labels_.ids[static_cast<std::size_t>(ids[i])], ids[i]);
    memory.batch.labels = std::span(memory.labels).first(ids.size());
    if (labels_.weights.empty()) return;
    for (std::size_t i = 0; i < ids.size(); ++i)
      memory.weights[i] = labels_.weights[static_cast<std::size_t>(memory.labels[i])];
    memory.batch.weights = std::span(memory.weights).first(ids.size());
  }

 private:
  const ClassLabels& labels_;
  const LabelRange range_;
};

}  // namespace

void ClassLabels::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(ids)));
}

std::vector<std::int64_t> ClassLabels::choose(std::int64_t wanted, std::uint64_t seed) const {
  return stratified_positions(ids, wanted, seed);
}

void ClassLabels::keep(std::span<const std::int64_t> chosen) { keep_chosen(ids, 1, chosen); }

std::unique_ptr<BatchPart> ClassLabels::batch_part(const std::string& set, const Samples&) const {
  return std::make_unique<CopiedClasses>(set, *this);
}

}  // namespace io
