// Draws the digits: jittered control points, a random affine map, distance to the strokes, ink,
// noise. The bytes are the same everywhere: it uses only + - * / and square roots of floats, which
// IEEE 754 rounds uniquely, compiled without fused multiply-add (CMakeLists.txt), and no function
// of the math library.
#include "io/data/readers/drawn/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "io/base/numbers/split_mix.h"
#include "io/data/readers/drawn/glyph_strokes.h"

namespace io {
namespace {

constexpr int kGlyphSide = 28, kPixels = kGlyphSide * kGlyphSide;
constexpr int kSpanSteps = 4;  // straight pieces between two points of a curve
constexpr float kFar = 1e6f;   // squared distance of pixels that are far from every stroke

// The ranges of random variation between images, in pixels and radians unless stated otherwise.
constexpr float kPointJitter = 0.08f;  // jitter of a control point, in units of the digit
constexpr float kMaxAngle = 0.24f, kMaxShear = 0.25f, kMaxShift = 2.5f;
constexpr float kMinHeight = 7.0f, kMaxHeight = 10.0f;  // half the digit's height
constexpr float kMinAspect = 0.8f, kMaxAspect = 1.25f;
constexpr float kMinPen = 0.7f, kMaxPen = 1.4f;      // half the stroke's width
constexpr float kMinEdge = 0.9f, kMaxEdge = 1.8f;    // from full ink to none
constexpr float kMinInk = 160.0f, kMaxInk = 255.0f;  // gray level
constexpr float kMaxNoise = 32.0f;                   // gray levels, upwards and downwards

// Four adjacent pixels of a row, in one vector register: GCC does not vectorize the comparisons by
// itself.
using Lanes = float __attribute__((vector_size(16)));
constexpr int kLanes = 4, kRowLanes = kGlyphSide / kLanes;

Lanes clamp_lanes(Lanes value, float low, float high) {
  const Lanes lows = Lanes{} + low, highs = Lanes{} + high;
  value = value < lows ? lows : value;
  return value > highs ? highs : value;
}

// Uniform in [low, high), on a grid of 2^24 steps.
float between(SplitMix& random, float low, float high) {
  return low + (high - low) * (static_cast<float>(random.next() >> 40) * 0x1p-24f);
}

struct Affine {
  float xx, xy, yx, yy, dx, dy;
  GlyphPoint operator()(GlyphPoint p) const {
    return {xx * p.x + xy * p.y + dx, yx * p.x + yy * p.y + dy};
  }
};

// Scale, then shear, then rotation, then shift to near the middle of the image.
Affine draw_affine(SplitMix& random) {
  const float height = between(random, kMinHeight, kMaxHeight);
  const float width = height * between(random, kMinAspect, kMaxAspect);
  const float shear = between(random, -kMaxShear, kMaxShear),
              angle = between(random, -kMaxAngle, kMaxAngle);
  const float square = angle * angle;  // series of sine and cosine, accurate to 1e-6 at these
                                       // angles
  const float sine = angle * (1.0f - square / 6.0f * (1.0f - square / 20.0f));
  const float cosine = 1.0f - square / 2.0f * (1.0f - square / 12.0f * (1.0f - square / 30.0f));
  const float centre = (kGlyphSide - 1) / 2.0f;
  return {cosine * width,
          (cosine * shear - sine) * height,
          sine * width,
          (sine * shear + cosine) * height,
          centre + between(random, -kMaxShift, kMaxShift),
          centre + between(random, -kMaxShift, kMaxShift)};
}

// The squared distance of every pixel to the nearest stroke.
class DistanceField {
 public:
  explicit DistanceField(float reach) : reach_(reach) { squares_.fill(Lanes{} + kFar); }

  // Reduces the distances around one straight piece.
  void add_segment(GlyphPoint a, GlyphPoint b) {
    const int top = clip(std::min(a.y, b.y) - reach_),
              bottom = clip(std::max(a.y, b.y) + reach_ + 1.0f);
    const int left = clip(std::min(a.x, b.x) - reach_) / kLanes;
    const int right = (clip(std::max(a.x, b.x) + reach_ + 1.0f) + kLanes - 1) / kLanes;
    const float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    const float scale = length > 0.0f ? 1.0f / length : 0.0f;
    for (int y = top; y < bottom; ++y) {
      const float py = static_cast<float>(y) - a.y;
      for (int x = left; x < right; ++x) {
        const Lanes px = Lanes{0.0f, 1.0f, 2.0f, 3.0f} + (static_cast<float>(x * kLanes) - a.x);
        const Lanes t = clamp_lanes((px * dx + py * dy) * scale, 0.0f, 1.0f);
        const Lanes ex = px - t * dx, ey = py - t * dy, square = ex * ex + ey * ey;
        Lanes& nearest = squares_[static_cast<std::size_t>(y * kRowLanes + x)];
        nearest = square < nearest ? square : nearest;
      }
    }
  }

  // Returns the distances of the pixels kLanes * i to kLanes * i + 3, counted row by row.
  Lanes distance(std::size_t i) const {
    const Lanes square = squares_[i];
    return Lanes{std::sqrt(square[0]), std::sqrt(square[1]), std::sqrt(square[2]),
                 std::sqrt(square[3])};
  }

 private:
  static int clip(float position) {
    return static_cast<int>(std::clamp(position, 0.0f, static_cast<float>(kGlyphSide)));
  }

  float reach_;  // pixels farther from every stroke stay at kFar
  std::array<Lanes, kPixels / kLanes> squares_;
};

// Returns the point at t in [0, 1] between b and c on the curve through a, b, c, d (uniform
// Catmull-Rom spline).
GlyphPoint on_curve(GlyphPoint a, GlyphPoint b, GlyphPoint c, GlyphPoint d, float t) {
  const auto blend = [t](float p, float q, float r, float s) {
    return q +
           0.5f * t *
               (r - p + t * (2.0f * p - 5.0f * q + 4.0f * r - s + t * (3.0f * (q - r) + s - p)));
  };
  return {blend(a.x, b.x, c.x, d.x), blend(a.y, b.y, c.y, d.y)};
}

void draw_stroke(const GlyphStroke& stroke, const Affine& map, SplitMix& random,
                 DistanceField& field) {
  std::array<GlyphPoint, kMaxGlyphPoints> points;
  const std::size_t count = stroke.points.size();
  for (std::size_t i = 0; i < count; ++i) {
    const float jitter_x = between(random, -kPointJitter, kPointJitter),
                jitter_y = between(random, -kPointJitter, kPointJitter);
    points[i] = map({stroke.points[i].x + jitter_x, stroke.points[i].y + jitter_y});
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    GlyphPoint from = points[i];
    const GlyphPoint before = points[i > 0 ? i - 1 : 0], after = points[std::min(i + 2, count - 1)];
    for (int step = 1; stroke.smooth && step < kSpanSteps; ++step) {
      const GlyphPoint to =
          on_curve(before, points[i], points[i + 1], after, static_cast<float>(step) / kSpanSteps);
      field.add_segment(from, to);
      from = to;
    }
    field.add_segment(from, points[i + 1]);
  }
}

void draw_digit(int digit, SplitMix& random, std::uint8_t* pixels) {
  const auto styles = glyph_styles(digit);
  const GlyphStyle style = styles[random.below(static_cast<std::uint32_t>(styles.size()))];
  const Affine map = draw_affine(random);
  const float pen = between(random, kMinPen, kMaxPen), edge = between(random, kMinEdge, kMaxEdge);
  const float ink = between(random, kMinInk, kMaxInk),
              noise = between(random, 0.0f, kMaxNoise) / 127.5f;

  DistanceField field(pen + edge);
  for (const GlyphStroke& stroke : style) draw_stroke(stroke, map, random, field);

  const float outer = pen + edge, slope = ink / edge;
  std::uint64_t grain = 0;  // eight random bytes
  for (std::size_t i = 0; i < kPixels / kLanes; ++i) {
    grain = i % 2 == 0 ? random.next() : grain >> 32;
    const auto byte = [grain](int lane) { return static_cast<float>(grain >> (8 * lane) & 255); };
    const Lanes specks = (Lanes{byte(0), byte(1), byte(2), byte(3)} - 127.5f) * noise;
    const Lanes level = clamp_lanes(
        clamp_lanes((outer - field.distance(i)) * slope, 0.0f, ink) + specks, 0.0f, 255.0f);
    for (int lane = 0; lane < kLanes; ++lane)
      *pixels++ = static_cast<std::uint8_t>(static_cast<std::int32_t>(level[lane] + 0.5f));
  }
}

// Draws the digits of ten consecutive images: a permutation of 0..9.
std::array<int, 10> draw_labels(std::uint64_t seed, std::uint64_t stream, std::int64_t block) {
  SplitMix random(seed, stream, static_cast<std::uint64_t>(block));
  std::array<int, 10> labels{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (std::uint32_t i = 9; i > 0; --i) std::swap(labels[i], labels[random.below(i + 1)]);
  return labels;
}

}  // namespace

Dataset draw_glyphs(GlyphSplit split, std::int64_t count, std::uint64_t seed) {
  ImageSamples images{.format = {.shape = {kGlyphSide, kGlyphSide, 1}}};
  images.pixels.resize(static_cast<std::size_t>(count) * kPixels);
  ClassLabels digits{.count = 10, .names = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}};
  digits.ids.resize(static_cast<std::size_t>(count));
  const std::uint64_t image_stream = 2 * static_cast<std::uint64_t>(split),
                      label_stream = image_stream + 1;
  std::array<int, 10> labels{};
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % 10 == 0) labels = draw_labels(seed, label_stream, i / 10);
    const int digit = labels[static_cast<std::size_t>(i % 10)];
    SplitMix random(seed, image_stream, static_cast<std::uint64_t>(i));
    draw_digit(digit, random, &images.pixels[static_cast<std::size_t>(i) * kPixels]);
    digits.ids[static_cast<std::size_t>(i)] = digit;
  }
  return {.name = "glyphs", .samples = std::move(images), .labels = std::move(digits)};
}

}  // namespace io
