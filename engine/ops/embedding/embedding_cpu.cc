// Embedding in float32. Bound by bytes. Backward assigns each thread a range of tokens, so that one
// thread sums a row in the order of its places for any number of threads.
#include "engine/ops/embedding/embedding_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

void forward(const EmbeddingForward& o, const EmbeddingSizes& s, ThreadPool& threads) {
  const std::int32_t* tokens = integers(o.tokens);
  const float* table = floats(o.table);
  float* y = floats(o.y);
  const std::int64_t width = s.width;
  threads.run(s.places, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t p = first; p < last; ++p) {
      const float* from = table + tokens[p] * width;
      float* to = y + p * width;
      for_each_vector(0, width, [=](auto lanes, std::int64_t c) {
        lanes.store_to(to + c, lanes.load_from(from + c));
      });
    }
  });
}

void backward(const EmbeddingBackward& o, const EmbeddingSizes& s, ThreadPool& threads) {
  const std::int32_t* tokens = integers(o.tokens);
  const float* dy = floats(o.dy);
  float* dtable = floats(o.dtable);
  const std::int64_t places = s.places, width = s.width;
  const bool add = o.write == Write::kAdd;
  threads.run(s.vocabulary, [=](std::int64_t first, std::int64_t last, int) {
    if (!add)
      __builtin_memset(dtable + first * width, 0,
                       static_cast<std::size_t>((last - first) * width) * sizeof(float));
    for (std::int64_t p = 0; p < places; ++p) {
      if (tokens[p] < first || tokens[p] >= last) continue;
      const float* from = dy + p * width;
      float* to = dtable + tokens[p] * width;
      for_each_vector(0, width, [=](auto lanes, std::int64_t c) {
        put<true>(lanes, to + c, lanes.load_from(from + c));
      });
    }
  });
}

void add_positions_forward(const float* x, std::int64_t n, std::int64_t item,
                           const float* positions, float* y, ThreadPool& threads) {
  threads.run(n, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t s = first; s < last; ++s) {
      const float* from = x + s * item;
      float* to = y + s * item;
      for_each_vector(0, item, [=](auto lanes, std::int64_t i) {
        lanes.store_to(to + i, lanes.load_from(from + i) + lanes.load_from(positions + i));
      });
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
