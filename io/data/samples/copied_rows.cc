// Copies rows to batches.
#include "io/data/samples/copied_rows.h"

#include <algorithm>

namespace io {
namespace {

class CopiedRows : public BatchPart {
 public:
  CopiedRows(const std::vector<float>& values, std::size_t width)
      : values_(values), width_(width) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.samples.resize(samples * width_);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::copy_n(values_.data() + static_cast<std::size_t>(ids[i]) * width_, width_,
                  memory.samples.data() + i * width_);
    memory.batch.samples = std::span(memory.samples).first(ids.size() * width_);
  }

 private:
  const std::vector<float>& values_;
  const std::size_t width_;
};

}  // namespace

std::unique_ptr<BatchPart> copied_rows(const std::vector<float>& values, std::size_t width) {
  return std::make_unique<CopiedRows>(values, width);
}

}  // namespace io
