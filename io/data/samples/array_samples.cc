// Copies numbers or token ids to batches.
#include "io/data/samples/array_samples.h"

#include <algorithm>

#include "io/data/samples/copied_rows.h"
#include "io/data/samples/keep_chosen.h"
#include "io/data/samples/sample_checks.h"

namespace io {
namespace {

class CopiedIds : public BatchPart {
 public:
  explicit CopiedIds(const ArraySamples& samples) : samples_(samples), width_(samples.width()) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.tokens.resize(samples * width_);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    auto out = memory.tokens.begin();
    for (const std::int64_t id : ids)
      out = std::copy_n(samples_.ids.begin() + id * static_cast<std::int64_t>(width_), width_, out);
    memory.batch.tokens = std::span(memory.tokens).first(ids.size() * width_);
  }

 private:
  const ArraySamples& samples_;
  const std::size_t width_;
};

}  // namespace

void ArraySamples::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(values)));
  digest.add(std::as_bytes(std::span(ids)));
}

void ArraySamples::keep(std::span<const std::int64_t> chosen) {
  are_tokens ? keep_chosen(ids, width(), chosen) : keep_chosen(values, width(), chosen);
}

std::unique_ptr<BatchPart> ArraySamples::batch_part(const Preparation& how) const {
  check_stored(how, are_tokens ? ids.size() : values.size(), "numbers", width());
  refuse_images(how);
  if (are_tokens) return std::make_unique<CopiedIds>(*this);
  return copied_rows(values, width());
}

}  // namespace io
