// Defines the interface to which a step passes its gradients between backward and the update.
#pragma once

#include <cstdint>

#include "engine/optim/optimizer.h"

namespace engine {

// Exchanges one flat gradient buffer in host memory. A step calls ready() with growing counts, the
// last one being all elements, and then finish(). All ranks make the same steps.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // The first `elements` are final on this rank. Does not block.
  virtual void ready(std::int64_t elements) = 0;
  // Blocks until the gradients are ready for the optimizer. Rethrows the communicator's exception.
  virtual void finish() = 0;
  // Called after a step that failed: returns when no thread of the exchange changes memory any
  // more. Does not throw.
  virtual void wait_idle() noexcept {}
  // The Euclidean norm of all gradients after finish(), even if this rank holds only a part of
  // them.
  virtual double norm(KernelContext& context, const FlatBuffer& gradients) {
    return gradient_norm(context, gradients);
  }
};

}  // namespace engine
