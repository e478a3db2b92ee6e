// Pooling of floats or bf16, with vectors along the channels and threads over samples or rows of
// output. Bound by bytes. The common window of 2x2 with stride 2 and no padding has its own loops:
// each input pixel belongs to at most one window, so that backward writes each place of dx once,
// without clearing it first.
#include "engine/ops/pool/pool2d_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// Stores the positions of one vector of maxima as bytes. Written by hand for x86: Eigen 3.4 has no
// cast between words and bytes there, and compilers split __builtin_convertvector into lanes. (The
// maskz forms are the plain instructions; GCC 12 warns of an uninitialized operand inside its plain
// forms.)
ENGINE_INLINE void store_winners(AllLanes, std::uint8_t* p, Ints winners) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm512_maskz_cvtepi32_epi8(0xFFFF, reinterpret_cast<__m512i>(winners)));
#elif defined(__AVX2__)
  const __m256i w = reinterpret_cast<__m256i>(winners);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
#elif defined(__SSE2__)
  const __m128i words =
      _mm_packs_epi32(reinterpret_cast<__m128i>(winners), reinterpret_cast<__m128i>(winners));
  const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  __builtin_memcpy(p, &bytes, sizeof bytes);
#else
  for (int i = 0; i < kWidth; ++i) p[i] = static_cast<std::uint8_t>(winners[i]);
#endif
}
ENGINE_INLINE void store_winners(SomeLanes lanes, std::uint8_t* p, Ints winners) {
  for (std::int64_t i = 0; i < lanes.count; ++i) p[i] = static_cast<std::uint8_t>(winners[i]);
}
ENGINE_INLINE Ints load_winners(AllLanes, const std::uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<Ints>(
      _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif defined(__SSE2__)
  int bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), _mm_setzero_si128());
  return reinterpret_cast<Ints>(_mm_unpacklo_epi16(words, _mm_setzero_si128()));
#else
  Ints winners{};
  for (int i = 0; i < kWidth; ++i) winners[i] = p[i];
  return winners;
#endif
}
ENGINE_INLINE Ints load_winners(SomeLanes lanes, const std::uint8_t* p) {
  Ints winners{};
  for (std::int64_t i = 0; i < lanes.count; ++i) winners[i] = p[i];
  return winners;
}

// The first of equal values stays; NaN is greater than everything, as in PyTorch.
struct Best {
  Floats value;
  Ints winner;
  ENGINE_INLINE void offer(Floats other, int place) {
    const Ints wins = (other > value) | (other != other);
    value = select(wins, other, value);
    winner = (winner & ~wins) | (wins & place);
  }
};

bool is_quartering(const PoolSizes& s) {
  return s.window == 2 && s.stride == 2 && s.padding == 0 && 2 * s.out_h <= s.in_h &&
         2 * s.out_w <= s.in_w;
}

// Computes rows of output [first, last) of the batch, viewed as one tall image.
template <bool kWinners>
void quarter_max_forward(PoolSizes s, const Stored* x, Stored* y, std::uint8_t* argmax,
                         std::int64_t first, std::int64_t last) {
  const std::int64_t row_floats = s.in_w * s.channels;
  for (std::int64_t row = first; row < last; ++row) {
    const Stored* top = x + (row / s.out_h * s.in_h + row % s.out_h * 2) * row_floats;
    for (std::int64_t column = 0; column < s.out_w; ++column) {
      const Stored* corner = top + column * 2 * s.channels;
      const std::int64_t out = (row * s.out_w + column) * s.channels;
      for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
        Best best{lanes.load_from(corner + c), Ints{}};
        best.offer(lanes.load_from(corner + s.channels + c), 1);
        best.offer(lanes.load_from(corner + row_floats + c), 2);
        best.offer(lanes.load_from(corner + row_floats + s.channels + c), 3);
        lanes.store_to(y + out + c, best.value);
        if constexpr (kWinners) store_winners(lanes, argmax + out + c, best.winner);
      });
    }
  }
}

ENGINE_INLINE void clear(Stored* p, std::int64_t count) {
  __builtin_memset(p, 0, static_cast<std::size_t>(count) * sizeof(Stored));
}

template <bool kAdd>
void quarter_max_backward(PoolSizes s, const Stored* dy, const std::uint8_t* argmax, Stored* dx,
                          std::int64_t first, std::int64_t last) {
  const std::int64_t row_floats = s.in_w * s.channels, used = s.out_w * 2 * s.channels;
  for (std::int64_t row = first; row < last; ++row) {
    Stored* top = dx + (row / s.out_h * s.in_h + row % s.out_h * 2) * row_floats;
    for (std::int64_t column = 0; column < s.out_w; ++column) {
      Stored* corner = top + column * 2 * s.channels;
      const std::int64_t out = (row * s.out_w + column) * s.channels;
      for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
        const Floats g = lanes.load_from(dy + out + c);
        const Ints winner = load_winners(lanes, argmax + out + c);
        put<kAdd>(lanes, corner + c, select(winner == 0, g, zero()));
        put<kAdd>(lanes, corner + s.channels + c, select(winner == 1, g, zero()));
        put<kAdd>(lanes, corner + row_floats + c, select(winner == 2, g, zero()));
        put<kAdd>(lanes, corner + row_floats + s.channels + c, select(winner == 3, g, zero()));
      });
    }
    if constexpr (kAdd) continue;
    // Clears a last column or row that no window covers.
    clear(top + used, row_floats - used);
    clear(top + row_floats + used, row_floats - used);
    if (row % s.out_h == s.out_h - 1)
      clear(top + 2 * row_floats, (s.in_h - 2 * s.out_h) * row_floats);
  }
}

// One window, clipped to the image: its places, the input pixel of place (0, 0), and the number of
// places in the padded image.
struct Window {
  std::int64_t first_row, last_row, first_column, last_column, origin, area;
};

ENGINE_INLINE Window window_at(const PoolSizes& s, std::int64_t sample, std::int64_t out_row,
                               std::int64_t out_column) {
  const std::int64_t top = out_row * s.stride - s.padding, left = out_column * s.stride - s.padding;
  return {
      larger(0, -top),
      smaller(s.window, s.in_h - top),
      larger(0, -left),
      smaller(s.window, s.in_w - left),
      (sample * s.in_h + top) * s.in_w + left,
      smaller(s.window, s.in_h + s.padding - top) * smaller(s.window, s.in_w + s.padding - left)};
}

// Calls visit(place, input pixel) row by row.
template <class Visit>
ENGINE_INLINE void for_each_place(const PoolSizes& s, const Window& w, Visit visit) {
  for (std::int64_t i = w.first_row; i < w.last_row; ++i) {
    for (std::int64_t j = w.first_column; j < w.last_column; ++j)
      visit(i * s.window + j, w.origin + i * s.in_w + j);
  }
}

// Calls visit(output pixel, window) over samples [first, last).
template <class Visit>
ENGINE_INLINE void for_each_window(const PoolSizes& s, std::int64_t first, std::int64_t last,
                                   Visit visit) {
  std::int64_t out = first * s.out_h * s.out_w;
  for (std::int64_t sample = first; sample < last; ++sample) {
    for (std::int64_t row = 0; row < s.out_h; ++row) {
      for (std::int64_t column = 0; column < s.out_w; ++column)
        visit(out++, window_at(s, sample, row, column));
    }
  }
}

void window_max_forward(PoolSizes s, const Stored* x, Stored* y, std::uint8_t* argmax,
                        std::int64_t first, std::int64_t last) {
  for_each_window(s, first, last, [&](std::int64_t out, const Window& w) {
    const std::int64_t start = w.first_row * s.window + w.first_column;
    const std::int64_t start_pixel = w.origin + w.first_row * s.in_w + w.first_column;
    for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
      Best best{lanes.load_from(x + start_pixel * s.channels + c),
                Ints{} + static_cast<int>(start)};
      for_each_place(s, w, [&](std::int64_t place, std::int64_t pixel) {
        best.offer(lanes.load_from(x + pixel * s.channels + c), static_cast<int>(place));
      });
      lanes.store_to(y + out * s.channels + c, best.value);
      if (argmax != nullptr) store_winners(lanes, argmax + out * s.channels + c, best.winner);
    });
  });
}

void window_max_backward(PoolSizes s, const Stored* dy, const std::uint8_t* argmax, Stored* dx,
                         std::int64_t first, std::int64_t last) {
  for_each_window(s, first, last, [&](std::int64_t out, const Window& w) {
    for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
      const Floats g = lanes.load_from(dy + out * s.channels + c);
      const Ints winner = load_winners(lanes, argmax + out * s.channels + c);
      for_each_place(s, w, [&](std::int64_t place, std::int64_t pixel) {
        put<true>(lanes, dx + pixel * s.channels + c,
                  select(winner == static_cast<int>(place), g, zero()));
      });
    });
  });
}

void max_forward(const MaxPool2dForward& o, const PoolSizes& s, ThreadPool& threads) {
  const Stored* x = stored(o.x);
  Stored* y = stored(o.y);
  auto* argmax = static_cast<std::uint8_t*>(o.argmax.data);
  if (!is_quartering(s)) {
    threads.run(s.n, [&](std::int64_t first, std::int64_t last, int) {
      window_max_forward(s, x, y, argmax, first, last);
    });
    return;
  }
  const auto run = argmax != nullptr ? quarter_max_forward<true> : quarter_max_forward<false>;
  threads.run(s.n * s.out_h, [&](std::int64_t first, std::int64_t last, int) {
    run(s, x, y, argmax, first, last);
  });
}

void max_backward(const MaxPool2dBackward& o, const PoolSizes& s, ThreadPool& threads) {
  const Stored* dy = stored(o.dy);
  const auto* argmax = static_cast<const std::uint8_t*>(o.argmax.data);
  Stored* dx = stored(o.dx);
  const bool add = o.write == Write::kAdd;
  if (is_quartering(s)) {
    const auto run = add ? quarter_max_backward<true> : quarter_max_backward<false>;
    threads.run(s.n * s.out_h, [&](std::int64_t first, std::int64_t last, int) {
      run(s, dy, argmax, dx, first, last);
    });
    return;
  }
  const std::int64_t sample = s.in_h * s.in_w * s.channels;
  threads.run(s.n, [&](std::int64_t first, std::int64_t last, int) {
    if (!add) clear(dx + first * sample, (last - first) * sample);
    window_max_backward(s, dy, argmax, dx, first, last);
  });
}

void average_forward(const AveragePool2dForward& o, const PoolSizes& s, ThreadPool& threads) {
  const Stored* x = stored(o.x);
  Stored* y = stored(o.y);
  threads.run(s.n, [&](std::int64_t first_sample, std::int64_t last_sample, int) {
    for_each_window(s, first_sample, last_sample, [&](std::int64_t out, const Window& w) {
      const float inverse_area = 1.0f / static_cast<float>(w.area);
      for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
        Floats sum{};
        for_each_place(s, w, [&](std::int64_t, std::int64_t pixel) {
          sum += lanes.load_from(x + pixel * s.channels + c);
        });
        lanes.store_to(y + out * s.channels + c, sum * inverse_area);
      });
    });
  });
}

void average_backward(const AveragePool2dBackward& o, const PoolSizes& s, ThreadPool& threads) {
  const Stored* dy = stored(o.dy);
  Stored* dx = stored(o.dx);
  const bool add = o.write == Write::kAdd;
  const std::int64_t sample = s.in_h * s.in_w * s.channels;
  threads.run(s.n, [&](std::int64_t first_sample, std::int64_t last_sample, int) {
    if (!add) clear(dx + first_sample * sample, (last_sample - first_sample) * sample);
    for_each_window(s, first_sample, last_sample, [&](std::int64_t out, const Window& w) {
      const float inverse_area = 1.0f / static_cast<float>(w.area);
      for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
        const Floats g = lanes.load_from(dy + out * s.channels + c) * inverse_area;
        for_each_place(s, w, [&](std::int64_t, std::int64_t pixel) {
          put<true>(lanes, dx + pixel * s.channels + c, g);
        });
      });
    });
  });
}

void global_forward(const TensorView& x_operand, const TensorView& y_operand,
                    const GlobalSizes& sizes, ThreadPool& threads) {
  const Stored* x = stored(x_operand);
  Stored* y = stored(y_operand);
  const std::int64_t n = sizes.n, pixels = sizes.pixels, channels = sizes.channels;
  const float inverse = 1.0f / static_cast<float>(pixels);
  threads.run(n, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t s = first; s < last; ++s) {
      for_each_vector(0, channels, [&](auto lanes, std::int64_t c) {
        const Stored* column = x + s * pixels * channels + c;
        Floats sum[4] = {};  // four chains: an addition takes four cycles
        std::int64_t p = 0;
        for (; p + 4 <= pixels; p += 4) {
          for (int k = 0; k < 4; ++k) sum[k] += lanes.load_from(column + (p + k) * channels);
        }
        for (; p < pixels; ++p) sum[0] += lanes.load_from(column + p * channels);
        lanes.store_to(y + s * channels + c, ((sum[0] + sum[1]) + (sum[2] + sum[3])) * inverse);
      });
    }
  });
}

template <bool kAdd>
void global_backward_rows(std::int64_t pixels, std::int64_t channels, const Stored* dy, Stored* dx,
                          std::int64_t first, std::int64_t last) {
  const float inverse = 1.0f / static_cast<float>(pixels);
  for (std::int64_t row = first; row < last; ++row) {
    const Stored* g = dy + row / pixels * channels;
    for_each_vector(0, channels, [&](auto lanes, std::int64_t c) {
      put<kAdd>(lanes, dx + row * channels + c, lanes.load_from(g + c) * inverse);
    });
  }
}

void global_backward(const TensorView& dy_operand, const TensorView& dx_operand,
                     const GlobalSizes& sizes, bool add, ThreadPool& threads) {
  const Stored* dy = stored(dy_operand);
  Stored* dx = stored(dx_operand);
  const std::int64_t n = sizes.n, pixels = sizes.pixels, channels = sizes.channels;
  const auto run = add ? global_backward_rows<true> : global_backward_rows<false>;
  threads.run(n * pixels, [=](std::int64_t first, std::int64_t last, int) {
    run(pixels, channels, dy, dx, first, last);
  });
}

}  // namespace

const Pool2dTable pool2d_table{max_forward,      max_backward,   average_forward,
                               average_backward, global_forward, global_backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
