// Functions and shapes that the tests of activations and products share, on CPUs and on devices.
#pragma once

#include <string>
#include <vector>

#include "engine/core/shape.h"
#include "engine/ops/elementwise/activation.h"

namespace kernel_test {

// Functions of positive numbers, or whose derivatives are not bounded.
inline bool is_steep(engine::ops::ActivationKind kind) {
  using enum engine::ops::ActivationKind;
  return kind == kExp || kind == kLog || kind == kSqrt || kind == kReciprocal || kind == kPower;
}
inline std::vector<engine::ops::Activation> steep_activations() {
  using enum engine::ops::ActivationKind;
  return {{kExp},        {kLog},         {kSqrt},     {kReciprocal}, {kPower, 2},
          {kPower, 0.5}, {kPower, -1.5}, {kPower, 0}, {kPower, 1}};
}
// All others.
inline std::vector<engine::ops::Activation> all_activations() {
  std::vector<engine::ops::Activation> all;
  for (std::size_t i = 0; i < engine::ops::kActivationNames.size(); ++i)
    if (const auto kind = static_cast<engine::ops::ActivationKind>(i); !is_steep(kind))
      all.push_back({kind, 0.25, 0.75});
  return all;
}
inline std::string activation_name(const engine::ops::Activation& f) {
  return std::string(engine::ops::kActivationNames[static_cast<std::size_t>(f.kind)]);
}

struct FactorShapes {
  engine::Shape a, b;
};
inline const FactorShapes kFactorShapes[] = {{{3, 5, 7, 17}, {3, 17}},
                                             {{2, 4, 4, 64}, {2, 1, 1, 64}},
                                             {{0, 3, 3, 4}, {0, 4}},
                                             {{1, 1, 1, 1}, {1, 1}},
                                             {{2, 3, 5, 9}, {2, 3, 5, 9}},
                                             {{4, 33}, {4, 33}},
                                             {{5}, {5}},
                                             {{2, 14, 14, 40}, {2, 40}}};

}  // namespace kernel_test
