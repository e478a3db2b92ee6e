// One thread per element of y, or of an entry's gradient. The indices are parameters of the
// kernels, some hundred for each launch, so that a step can be captured as a graph. Bound by bytes.
#include "engine/ops/general/gather_cuda.h"

#include <algorithm>

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/general/gather_sizes.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kChunk = 256;  // positions per launch: parameters have at most 4 KiB

struct Chunk {
  std::int64_t first, count;     // positions
  std::int32_t entries[kChunk];  // of each
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_rows(const T* x, GatherSizes s, Chunk chunk, T* y) {
  const std::int64_t each = chunk.count * s.inner, count = s.outer * each;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t outer = quotient(i, each), rest = i - outer * each,
                       position = quotient(rest, s.inner), inner = rest - position * s.inner;
    y[(outer * s.positions + chunk.first + position) * s.inner + inner] =
        x[(outer * s.entries + chunk.entries[position]) * s.inner + inner];
  }
}

// Positions ordered by entry; run r has the positions begins[r] to begins[r + 1] of one entry.
struct Runs {
  std::int64_t count;
  std::int32_t entries[kChunk], begins[kChunk + 1], positions[kChunk];
};

template <class T>
__global__ void __launch_bounds__(kThreads) add_runs(const T* dy, GatherSizes s, Runs runs, T* dx) {
  const std::int64_t each = runs.count * s.inner, count = s.outer * each;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t outer = quotient(i, each), rest = i - outer * each,
                       run = quotient(rest, s.inner), inner = rest - run * s.inner;
    Wide<T> sum = 0;
    for (std::int32_t k = runs.begins[run]; k < runs.begins[run + 1]; ++k)
      sum += to_wide(dy[(outer * s.positions + runs.positions[k]) * s.inner + inner]);
    T& to = dx[(outer * s.entries + runs.entries[run]) * s.inner + inner];
    to = from_wide<T>(to_wide(to) + sum);
  }
}

// The runs of the ordered positions from `first` on, up to kChunk positions. Only a run that is
// longer is cut, so that other sums are rounded once.
Runs runs_from(const GatherEntries& chosen, std::size_t first) {
  Runs runs{};
  const std::size_t count = std::min(chosen.positions.size() - first, std::size_t{kChunk});
  for (std::size_t k = 0; k < count; ++k) {
    const std::int32_t position = chosen.positions[first + k],
                       entry = chosen.entries[static_cast<std::size_t>(position)];
    if (runs.count == 0 || runs.entries[runs.count - 1] != entry) {
      runs.begins[runs.count] = static_cast<std::int32_t>(k);
      runs.entries[runs.count++] = entry;
    }
    runs.positions[k] = position;
  }
  runs.begins[runs.count] = static_cast<std::int32_t>(count);
  const std::size_t end = first + count;
  const bool is_cut = end < chosen.positions.size() &&
                      runs.entries[runs.count - 1] ==
                          chosen.entries[static_cast<std::size_t>(chosen.positions[end])];
  if (is_cut && runs.count > 1) --runs.count;
  return runs;
}

}  // namespace

void gather_forward(KernelContext& context, const GatherForward& o) {
  const GatherSizes s = gather_sizes(o.axis, o.x, o.y);
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    for (std::int64_t first = 0; first < s.positions; first += kChunk) {
      Chunk chunk{first, std::min(kChunk, s.positions - first), {}};
      std::copy_n(o.chosen.entries.begin() + first, chunk.count, chunk.entries);
      launch("gather_forward", gather_rows<T>,
             {loop_blocks(s.outer * chunk.count * s.inner, kThreads)}, kThreads, 0, context.stream,
             o.x.as<T>(), s, chunk, o.y.as<T>());
    }
  });
}

void add_gathered(KernelContext& context, const GatherBackward& o) {
  const GatherSizes s = gather_sizes(o.axis, o.dx, o.dy);
  with_any_storage(o.dx.dtype, [&]<class T>(T) {
    for (std::size_t first = 0; first < o.chosen.positions.size();) {
      const Runs runs = runs_from(o.chosen, first);
      launch("gather_backward", add_runs<T>,
             {loop_blocks(s.outer * runs.count * s.inner, kThreads)}, kThreads, 0, context.stream,
             o.dy.as<T>(), s, runs, o.dx.as<T>());
      first += static_cast<std::size_t>(runs.begins[runs.count]);
    }
  });
}

}  // namespace engine::ops::cuda
