// Concatenates all cases in one order.
#include <iterator>

#include "tools/bench/kernels/kernel_case.h"

namespace tools {

std::string extents_text(const engine::Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) text += (i == 0 ? "" : "x") + std::to_string(shape[i]);
  return text;
}

std::vector<KernelCase> kernel_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> all;
  for (const auto part :
       {dense_cases, convolution_cases, image_cases, text_cases, training_cases, window_cases}) {
    std::vector<KernelCase> some = part(sizes);
    all.insert(all.end(), std::make_move_iterator(some.begin()),
               std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace tools
