// Checks and dispatches fill_pixels(). On the CPU, threads share the pixels.
#include "engine/ops/windows/pixel_vectors.h"

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/windows/pixel_vectors_cuda.h"

namespace engine::ops {
namespace {

template <class T, class V>
void fill_on_cpu(ThreadPool& threads, const V* vector, std::int64_t width, const TensorView& y) {
  threads.run(y.count() / width, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t pixel = first; pixel < last; ++pixel)
      for (std::int64_t c = 0; c < width; ++c)
        y.as<T>()[pixel * width + c] = stored_as<T>(vector[c]);
  });
}

}  // namespace

void fill_pixels(KernelContext& context, const TensorView& vector, const TensorView& y) {
  constexpr const char* kName = "fill_pixels";
  check_stored(kName, "y", y);
  check_dtype(kName, "vector", vector, wide_dtype(y.dtype));
  check_shape(kName, "vector", vector, {y.shape[y.shape.rank() - 1]});
  check_context(kName, context);
  if (y.count() == 0) return;
  const std::int64_t width = vector.count();
  dispatch(
      context, y.dtype,
      [&] { fill_on_cpu<double>(*context.threads, vector.as<double>(), width, y); },
      [&] {
        with_cpu_storage(y.dtype, [&]<class T>(T) {
          fill_on_cpu<T>(*context.threads, vector.as<float>(), width, y);
        });
      },
      [&] { cuda::fill_pixels(context, vector, y); });
}

}  // namespace engine::ops
