// Pooling of activations stored in bf16: the numbers of f32, rounded where stored.
#include <gtest/gtest.h>

#include "engine/ops/pool/pool2d.h"
#include "tests/engine/ops/common/stored_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// Windows that tile the map, with rows and columns that none reaches; windows apart; one of
// everything. Where windows overlap, their gradients are rounded one after the other.
const Pool2dGeometry kStoredPools[] = {{28, 28, 16, 2, 2, 0}, {5, 7, 3, 2, 2, 0},
                                       {4, 4, 33, 2, 2, 0},   {9, 4, 5, 2, 3, 1},
                                       {5, 5, 40, 5, 5, 2},   {6, 6, 24, 3, 3, 0}};

struct StoredPool {
  Pool2dGeometry g;
  int threads;
  Write write;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    const Shape large{3, g.in_h, g.in_w, g.channels}, few{3, g.out_h(), g.out_w(), g.channels},
        one{3, g.channels};
    auto x = stored_operand<T>(large, 1), dy = stored_operand<T>(few, 2),
         dglobal = stored_operand<T>(one, 3), best = stored_output<T>(few, Write::kOverwrite),
         mean = best, global = stored_output<T>(one, Write::kOverwrite),
         dbest = stored_output<T>(large, write), dmean = dbest, dx = dbest;
    Operand<std::uint8_t> argmax(few, 255);
    Context c(threads, 0);
    KernelContext& context = c.context;
    max_pool2d_forward(context,
                       {.geometry = g, .x = x.view(), .y = best.view(), .argmax = argmax.view()});
    max_pool2d_backward(context, {.geometry = g,
                                  .dy = dy.view(),
                                  .argmax = argmax.view(),
                                  .dx = dbest.view(),
                                  .write = write});
    average_pool2d_forward(context, {.geometry = g, .x = x.view(), .y = mean.view()});
    average_pool2d_backward(context,
                            {.geometry = g, .dy = dy.view(), .dx = dmean.view(), .write = write});
    global_average_pool_forward(context, x.view(), global.view());
    global_average_pool_backward(context, dglobal.view(), dx.view(), write);
    return {floats_of(best),
            floats_of(dbest),
            floats_of(mean),
            floats_of(dmean),
            floats_of(global),
            floats_of(dx),
            {argmax.values.begin(), argmax.values.end()}};
  }
};

class Pool2dStored : public Bf16Test {};

TEST_F(Pool2dStored, IsThatOfFloatsRounded) {
  for (const Pool2dGeometry& g : kStoredPools)
    for (int threads = 1; threads <= 2; ++threads)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(std::to_string(g.in_h) + " x " + std::to_string(g.in_w) + " x " +
                     std::to_string(g.channels) + " window " + std::to_string(g.window) +
                     (write == Write::kAdd ? ", add" : ""));
        expect_same_rounded(StoredPool{g, threads, write}, 6);
      }
}

}  // namespace
}  // namespace engine::ops
