// Makes SGD and AdamW with typed options, whose defaults are PyTorch's.
#pragma once

#include <memory>

#include "engine/optim/optimizer.h"

namespace engine {

struct SgdOptions {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

struct AdamwOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

inline std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options, const FlatBuffer& values) {
  return make_optimizer("sgd",
                        {{"momentum", options.momentum},
                         {"weight-decay", options.weight_decay},
                         {"nesterov", options.nesterov}},
                        values);
}

inline std::unique_ptr<Optimizer> make_adamw(const AdamwOptions& options,
                                             const FlatBuffer& values) {
  return make_optimizer("adamw",
                        {{"adam-beta1", options.beta1},
                         {"adam-beta2", options.beta2},
                         {"adam-eps", options.eps},
                         {"weight-decay", options.weight_decay}},
                        values);
}

}  // namespace engine
