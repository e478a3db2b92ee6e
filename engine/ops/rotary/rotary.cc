// Checks and dispatches the rotary position embedding, and computes its angles.
#include "engine/ops/rotary/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/rotary/rotary_cpu.h"
#include "engine/ops/rotary/rotary_cuda.h"
#include "engine/ops/rotary/rotary_reference.h"

namespace engine::ops {
namespace {

RotarySizes check(const KernelContext& context, const Rotary& o) {
  check_floating("rotary", "x", o.x);
  check_like("rotary", "y", o.y, o.x);
  if (o.size < 2 || o.size % 2 != 0 || o.size > kMaxRotarySize)
    throw ShapeError("rotary: heads of " + std::to_string(o.size) +
                     ", expected an even number of elements, at most " +
                     std::to_string(kMaxRotarySize));
  const Shape& shape = o.x.shape;
  if (shape.rank() != 3 || o.heads < 1 || shape[2] < o.heads * o.size)
    throw ShapeError("rotary: x has the shape " + shape.to_string() + ", expected [n, t, " +
                     std::to_string(o.heads * o.size) + " or more]");
  if (!o.first_positions.empty() && std::ssize(o.first_positions) != shape[0])
    throw ShapeError("rotary: " + std::to_string(o.first_positions.size()) +
                     " first positions for a batch of " + std::to_string(shape[0]));
  check_context("rotary", context, rotary_scratch_bytes(shape[1], o.size, context.device.kind));
  return {shape[0] * shape[1], shape[1], o.heads, o.size / 2, shape[2]};
}

// Writes [t, 2, half]: cosines and sines of each position of the first sample.
void fill_table(const Rotary& o, const RotarySizes& s, const RotaryTurns& turns, float* table,
                ThreadPool& threads) {
  threads.run(s.t, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t position = first; position < last; ++position)
      for (std::int64_t i = 0; i < s.half; ++i) {
        const double angle =
            reference::rotary_angle(turns.at[i], o.first_position(0) + position, o.back);
        table[position * 2 * s.half + i] = static_cast<float>(std::cos(angle));
        table[(position * 2 + 1) * s.half + i] = static_cast<float>(std::sin(angle));
      }
  });
}

// Turns samples that begin at one position: they share a table.
void rotate_alike(KernelContext& context, const Rotary& o, const RotarySizes& s,
                  const RotaryTurns& turns) {
  auto* table = reinterpret_cast<float*>(context.scratch.data());
  fill_table(o, s, turns, table, *context.threads);
  isa_table_of_rotary_table().rotate(o, s, table, *context.threads);
}

void rotate_on_cpu(KernelContext& context, const Rotary& o, RotarySizes s,
                   const RotaryTurns& turns) {
  if (o.first_positions.empty()) return rotate_alike(context, o, s, turns);
  Rotary one = o;
  one.x.shape[0] = one.y.shape[0] = 1;
  s.rows = s.t;
  for (std::size_t sample = 0; sample < o.first_positions.size(); ++sample) {
    const std::int64_t at = static_cast<std::int64_t>(sample) * s.t * s.width;
    one.x.data = o.x.as<float>() + at;
    one.y.data = o.y.as<float>() + at;
    one.first_positions = o.first_positions.subspan(sample, 1);
    rotate_alike(context, one, s, turns);
  }
}

}  // namespace

RotaryTurns rotary_turns(const RotaryFrequencies& f, std::int64_t size) {
  RotaryTurns turns{};
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const double exponent = -2 * static_cast<double>(i) / static_cast<double>(size),
                 plain = std::pow(f.theta, exponent) / (2 * std::numbers::pi);
    const double in_context = plain * f.original_context;
    const double share =
        std::clamp((in_context - f.low_factor) / (f.high_factor - f.low_factor), 0.0, 1.0);
    turns.at[i] = f.factor == 1 ? plain : share * plain + (1 - share) * plain / f.factor;
  }
  return turns;
}

std::size_t rotary_scratch_bytes(std::int64_t t, std::int64_t size, Device::Kind device) {
  if (device == Device::Kind::kCuda) return 0;
  return static_cast<std::size_t>(t * size) * sizeof(float);
}

void rotary(KernelContext& context, const Rotary& o) {
  const RotarySizes s = check(context, o);
  const RotaryTurns turns = rotary_turns(o.frequencies, o.size);
  dispatch(
      context, o.x.dtype, [&] { reference::rotary<double>(o, turns); },
      [&] { rotate_on_cpu(context, o, s, turns); }, [&] { cuda::rotary(context, o, turns); });
}

}  // namespace engine::ops
