// Copies rows to batches.
#include "io/data/samples/feature_samples.h"

#include <algorithm>

#include "io/data/samples/absent_part.h"
#include "io/data/samples/keep_chosen.h"
#include "io/data/samples/sample_checks.h"

namespace io {
namespace {

class CopiedRows : public BatchPart {
 public:
  explicit CopiedRows(const FeatureSamples& rows) : rows_(rows), width_(rows.width()) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.samples.resize(samples * width_);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::copy_n(rows_.values.data() + static_cast<std::size_t>(ids[i]) * width_, width_,
                  memory.samples.data() + i * width_);
    memory.batch.samples = std::span(memory.samples).first(ids.size() * width_);
  }

 private:
  const FeatureSamples& rows_;
  const std::size_t width_;
};

}  // namespace

void FeatureSamples::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(values)));
}

void FeatureSamples::keep(std::span<const std::int64_t> chosen) {
  keep_chosen(values, width(), chosen);
}

std::unique_ptr<BatchPart> FeatureSamples::batch_part(const Preparation& how) const {
  check_stored(how, values.size(), "numbers", width());
  refuse_images(how);
  if (how.resident) return std::make_unique<AbsentPart>();
  return std::make_unique<CopiedRows>(*this);
}

}  // namespace io
