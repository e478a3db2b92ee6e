// Embedding in float32. Bound: bytes. Backward gives each thread a range of tokens, so that a row
// is summed by one thread in the order of its places whatever the number of threads.
#include "engine/ops/embedding/embedding_cpu.h"

#include "engine/ops/common/eigen_maps.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

void forward(const std::int32_t* tokens, std::int64_t places, std::int64_t width,
             const float* table, float* y, ThreadPool& threads) {
  threads.run(places, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t p = first; p < last; ++p) {
      array_at(y + p * width, width) = array_at(table + tokens[p] * width, width);
    }
  });
}

void backward(const std::int32_t* tokens, std::int64_t places, std::int64_t vocabulary,
              std::int64_t width, const float* dy, float* dtable, bool add, ThreadPool& threads) {
  threads.run(vocabulary, [=](std::int64_t first, std::int64_t last, int) {
    if (!add)
      __builtin_memset(dtable + first * width, 0,
                       static_cast<std::size_t>((last - first) * width) * sizeof(float));
    for (std::int64_t p = 0; p < places; ++p) {
      if (tokens[p] < first || tokens[p] >= last) continue;
      array_at(dtable + tokens[p] * width, width) += array_at(dy + p * width, width);
    }
  });
}

void add_positions_forward(const float* x, std::int64_t n, std::int64_t item,
                           const float* positions, float* y, ThreadPool& threads) {
  threads.run(n, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t s = first; s < last; ++s) {
      array_at(y + s * item, item) = array_at(x + s * item, item) + array_at(positions, item);
    }
  });
}

template <bool kAdd>
void add_positions_backward_as(const float* dy, std::int64_t n, std::int64_t item,
                               std::int64_t elements, float* dpositions, ThreadPool& threads) {
  run_flat(threads, item, [=](auto lanes, std::int64_t i) {
    Floats sum = zero();
    for (std::int64_t s = 0; s < n; ++s) sum += lanes.load_from(dy + s * item + i);
    put<kAdd>(lanes, dpositions + i, sum);
  });
  if (!kAdd)
    __builtin_memset(dpositions + item, 0,
                     static_cast<std::size_t>(elements - item) * sizeof(float));
}

void add_positions_backward(const float* dy, std::int64_t n, std::int64_t item,
                            std::int64_t elements, float* dpositions, bool add,
                            ThreadPool& threads) {
  (add ? add_positions_backward_as<true> : add_positions_backward_as<false>)(dy, n, item, elements,
                                                                             dpositions, threads);
}

}  // namespace

const EmbeddingTable embedding_table{forward, backward, add_positions_forward,
                                     add_positions_backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
