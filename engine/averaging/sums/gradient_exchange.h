// What a step hands its gradients to, between backward and the update.
#pragma once

#include <cstdint>

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
};

}  // namespace engine
