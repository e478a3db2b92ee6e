// The labels are the windows of the samples, shifted by one token.
#include "io/data/labels/next_tokens.h"

#include <cstddef>
#include <numeric>

#include "io/data/labels/label_range.h"

namespace io {
namespace {

class FollowingTokens : public BatchPart {
 public:
  FollowingTokens(const std::string& set, std::int64_t classes, const TokenSamples& stream)
      : stream_(stream),
        range_{.set = set, .classes = classes},
        context_(static_cast<std::size_t>(stream.context)) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.labels.resize(samples * context_);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::span<std::int32_t> following =
          std::span(memory.labels).subspan(i * context_, context_);
      stream_.tokens.copy(ids[i] * stream_.stride + 1, following);
      for (const std::int32_t token : following) static_cast<void>(range_.checked(token, ids[i]));
    }
    memory.batch.labels = std::span(memory.labels).first(ids.size() * context_);
  }

 private:
  const TokenSamples& stream_;
  const LabelRange range_;
  const std::size_t context_;
};

}  // namespace

std::int64_t NextTokens::size(const Samples& samples) const {
  return std::get<TokenSamples>(samples).windows();
}

std::vector<std::int64_t> NextTokens::choose(std::int64_t wanted, std::uint64_t) const {
  std::vector<std::int64_t> first(static_cast<std::size_t>(wanted));
  std::iota(first.begin(), first.end(), std::int64_t{0});
  return first;
}

std::unique_ptr<BatchPart> NextTokens::batch_part(const std::string& set,
                                                  const Samples& samples) const {
  return std::make_unique<FollowingTokens>(set, count, std::get<TokenSamples>(samples));
}

}  // namespace io
