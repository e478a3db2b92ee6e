// Copies what is in memory as a whole, and token streams, which may be in files, in pieces.
#include "engine/train/step/device_samples.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/core/cuda.h"

namespace engine {
namespace {

constexpr std::int64_t kTokensAtOnce = std::int64_t{1} << 22;  // tokens

Shape shape_of(const io::Dataset& dataset) {
  const auto [height, width, channels] = dataset.shape();
  return {dataset.size(), height, width, channels};
}

void copy_tokens(const io::TokenStream& tokens, Arena& memory, const cuda::Stream& stream) {
  std::vector<std::int32_t> piece;
  for (std::int64_t at = 0; at < tokens.size(); at += kTokensAtOnce) {
    piece.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, tokens.size() - at)));
    tokens.copy(at, piece);
    cuda::copy_async(memory.data() + static_cast<std::size_t>(at) * sizeof(std::int32_t),
                     piece.data(), piece.size() * sizeof(std::int32_t), stream.handle());
    stream.synchronize();  // the piece is used again
  }
}

}  // namespace

DeviceSamples::DeviceSamples(const io::Dataset& dataset, Device device)
    : memory_(bytes(dataset), device, "the data set") {
  const cuda::Stream stream;
  const auto copy = [&](const void* from) {
    cuda::copy_async(memory_.data(), from, memory_.bytes(), stream.handle());
    stream.synchronize();
  };
  if (const auto* images = dataset.find<io::ImageSamples>()) {
    copy(images->pixels.data());
    view_.samples = {memory_.data(), DType::kU8, shape_of(dataset), device};
  } else if (const auto* rows = dataset.find<io::FeatureSamples>()) {
    copy(rows->values.data());
    view_.samples = {memory_.data(), DType::kF32, shape_of(dataset), device};
  } else {
    const auto& text = dataset.as<io::TokenSamples>();
    copy_tokens(text.tokens, memory_, stream);
    view_ = {.samples = {memory_.data(), DType::kI32, Shape{text.tokens.size()}, device},
             .stride = text.stride};
  }
}

std::string DeviceSamples::obstacle(const io::Dataset& dataset) {
  if (const auto* images = dataset.find<io::ImageSamples>())
    return images->source ? "images of a folder are decoded in host memory" : "";
  if (dataset.find<io::FeatureSamples>() != nullptr || dataset.find<io::TokenSamples>() != nullptr)
    return "";
  return std::string(dataset.sample_traits().noun) + " are copied in host memory";
}

std::uint64_t DeviceSamples::bytes(const io::Dataset& dataset) {
  if (const auto* text = dataset.find<io::TokenSamples>())
    return static_cast<std::uint64_t>(text->tokens.size()) * sizeof(std::int32_t);
  return std::visit([](const auto& samples) { return samples.bytes(); }, dataset.samples);
}

}  // namespace engine
