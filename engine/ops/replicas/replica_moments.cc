// Checks and dispatches the combination of statistics on a CUDA device.
#include "engine/ops/replicas/replica_moments.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/replicas/replica_moments_cuda.h"

namespace engine::ops {
namespace {

// These kernels have no version for the CPU, which combines statistics without them
// (engine/averaging/statistics/replica_statistics.h).
template <class Cuda>
void on_device(std::string_view kernel, const KernelContext& context, Cuda cuda) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_context(kernel, context, 0);
  dispatch_device(
      context.device.kind, [] {}, cuda);
}

void check_blocks(std::string_view kernel, const TensorView& blocks, std::int64_t length) {
  check_dtype(kernel, "blocks", blocks, DType::kF64);
  check_count(kernel, "blocks", blocks, blocks.shape[0] * length);
}

}  // namespace

void pack_moments(KernelContext& context, std::int64_t rows, TensorView moments, TensorView block) {
  check_dtype("pack_moments", "moments", moments, DType::kF64);
  check_dtype("pack_moments", "block", block, DType::kF64);
  check_count("pack_moments", "block", block, 1 + moments.count());
  on_device("pack_moments", context, [&] { cuda::pack_moments(context, rows, moments, block); });
}

void merge_moments(KernelContext& context, TensorView blocks, TensorView moments) {
  check_dtype("merge_moments", "moments", moments, DType::kF64);
  check_blocks("merge_moments", blocks, 1 + moments.count());
  on_device("merge_moments", context, [&] { cuda::merge_moments(context, blocks, moments); });
}

void add_sums(KernelContext& context, TensorView blocks, TensorView sums) {
  check_dtype("add_sums", "sums", sums, DType::kF64);
  check_blocks("add_sums", blocks, sums.count());
  on_device("add_sums", context, [&] { cuda::add_sums(context, blocks, sums); });
}

}  // namespace engine::ops
