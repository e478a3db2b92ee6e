// Plans for the calling thread's device, and the instructions that they may use.
#include <atomic>

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/warpgroup_code_cuda.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {
namespace {

std::atomic<bool> allowed{true};
thread_local GemmCutWish wish_of_thread;
thread_local GemmPlan last_of_thread;

}  // namespace

void allow_warpgroup_products(bool on) { allowed = on; }

GemmPlan plan_on_device(const GemmShape& shape, const GemmKind& kind,
                        const GemmResidents& residents, std::int64_t max_splits) {
  GemmPlan plan = plan_gemm(shape, kind, {engine::cuda::processor_count(), residents}, max_splits,
                            wish_of_thread);
  plan.warpgroup =
      allowed && kind.short_storage && plan.tile == GemmTile128::kRows && has_warpgroup_code();
  return last_of_thread = plan;
}

void wish_for_cut(const GemmCutWish& wish) {
  wish_of_thread = wish;
  last_of_thread = {};
}

GemmPlan last_cut() { return last_of_thread; }

}  // namespace engine::ops::cuda
