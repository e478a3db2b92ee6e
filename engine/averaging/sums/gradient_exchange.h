// What a step hands its gradients to, between backward and the update.
#pragma once

#include <cstdint>

#include "engine/optim/optimizer.h"

namespace engine {

// Of one flat gradient buffer in host memory. A step is: ready() with growing counts, the last one
// all elements, then finish(). All ranks make the same steps.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // The first `elements` are final on this rank. Does not wait.
  virtual void ready(std::int64_t elements) = 0;
  // Blocks until the gradients are what the optimizer shall see. Throws what the wire throws.
  virtual void finish() = 0;
  // The Euclidean norm of all gradients, after finish(), though this rank may have a share of them.
  // Collective.
  virtual double norm(KernelContext& context, const FlatBuffer& gradients) {
    return gradient_norm(context, gradients);
  }
};

}  // namespace engine
