// Implements the copies on a stream of their own, so that backward continues beside them.
#include "engine/train/step/gradient_copies.h"

#include <type_traits>

namespace engine {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // minimum elements of a piece

}  // namespace

GradientCopies::GradientCopies(const FlatBuffer& device, const FlatBuffer& host, bool wanted)
    : device_(device),
      host_(host),
      pin_(host, wanted),
      pieces_(static_cast<std::size_t>(device.size() / kPiece + 1)) {}

void GradientCopies::send(std::int64_t elements, void* stream) {
  const std::int64_t sent = sent_ == 0 ? 0 : pieces_[sent_ - 1].end;
  if (elements == sent || (elements - sent < kPiece && elements < device_.size())) return;
  Piece& piece = pieces_[sent_++];
  piece.end = elements;
  piece.final.record(stream);
  piece.final.make_wait(stream_.handle());
  const auto offset = static_cast<std::size_t>(sent) * size_of(device_.dtype());
  cuda::copy_async(static_cast<std::byte*>(host_.data()) + offset,
                   static_cast<const std::byte*>(device_.data()) + offset,
                   static_cast<std::size_t>(elements - sent) * size_of(device_.dtype()),
                   stream_.handle());
  piece.arrived.record(stream_.handle());
}

void GradientCopies::deliver(GradientExchange& exchange) {
  for (std::size_t i = 0; i < sent_; ++i) {
    pieces_[i].arrived.synchronize();
    exchange.ready(pieces_[i].end);
  }
  sent_ = 0;
}

void GradientCopies::copy_back(void* stream) {
  cuda::copy_async(device_.data(), host_.data(), device_.bytes(), stream);
}

void GradientCopies::fetch(void* stream) const {
  cuda::copy_async(host_.data(), device_.data(), device_.bytes(), stream);
}

void GradientCopies::divide_by(double scale) const {
  if (scale == 1) return;
  const auto divide = [&](auto values) {
    for (auto& value : values)
      value = static_cast<std::remove_reference_t<decltype(value)>>(value / scale);
  };
  if (host_.dtype() == DType::kF64)
    divide(host_.span<double>());
  else
    divide(host_.span<float>());
}

}  // namespace engine
