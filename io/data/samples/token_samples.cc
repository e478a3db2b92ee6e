// Copies parts of the stream to batches of windows.
#include "io/data/samples/token_samples.h"

#include <cstddef>

#include "io/data/samples/absent_part.h"
#include "io/data/samples/sample_checks.h"

namespace io {
namespace {

class CopiedWindows : public BatchPart {
 public:
  explicit CopiedWindows(const TokenSamples& stream)
      : stream_(stream), context_(static_cast<std::size_t>(stream.context)) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.tokens.resize(samples * context_);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    for (std::size_t i = 0; i < ids.size(); ++i)
      stream_.tokens.copy(ids[i] * stream_.stride,
                          std::span(memory.tokens).subspan(i * context_, context_));
    memory.batch.tokens = std::span(memory.tokens).first(ids.size() * context_);
  }

 private:
  const TokenSamples& stream_;
  const std::size_t context_;
};

}  // namespace

void TokenSamples::keep(std::span<const std::int64_t> chosen) {
  const auto last = static_cast<std::int64_t>(chosen.size()) - 1;
  tokens.keep_first(last * stride + context + 1);
}

std::unique_ptr<BatchPart> TokenSamples::batch_part(const Preparation& how) const {
  refuse_images(how);
  if (how.resident) return std::make_unique<AbsentPart>();
  return std::make_unique<CopiedWindows>(*this);
}

}  // namespace io
