// Copies gradients of a device to host memory during backward, for the exchange, and back.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/averaging/sums/gradient_exchange.h"
#include "engine/core/cuda.h"
#include "engine/core/parameter_buffer.h"
#include "engine/train/step/device_copies.h"

namespace engine {

class GradientCopies {
 public:
  // Pins `host` if it is `wanted`: otherwise nothing is ever copied. Both buffers have the same
  // slots and dtype, and must outlive the copies.
  GradientCopies(const FlatBuffer& device, const FlatBuffer& host, bool wanted);

  // The gradients up to `elements` are final after the work on `stream`: starts to copy them once a
  // piece is large enough. Ascending numbers; the last one is the size of the buffers.
  void send(std::int64_t elements, void* stream);
  // Passes each piece to the exchange when it has arrived. Waits without a deadline for the device.
  void deliver(GradientExchange& exchange);
  // Copies the whole result of the exchange to the device.
  void copy_back(void* stream);
  // Copies all gradients to host memory, outside a step; the caller waits for `stream`.
  void fetch(void* stream) const;
  // Divides the gradients in host memory.
  void divide_by(double scale) const;
  // Waits for all copies to host memory, before that is freed.
  void synchronize() { stream_.synchronize(); }

 private:
  struct Piece {
    cuda::Event final, arrived;
    std::int64_t end = 0;  // its last element + 1
  };

  const FlatBuffer& device_;
  const FlatBuffer& host_;
  PinnedBuffer pin_;
  cuda::Stream stream_;
  std::vector<Piece> pieces_;
  std::size_t sent_ = 0;  // pieces in flight
};

}  // namespace engine
