// The shapes of the ten digits: pen strokes through a few control points.
#pragma once

#include <span>

namespace io {

struct GlyphPoint {
  float x, y;  // right and down; a digit fills about [-0.5, 0.5] x [-1, 1]
};

struct GlyphStroke {
  bool smooth;  // a curve through the points (Catmull-Rom); otherwise straight lines
  std::span<const GlyphPoint> points;
};

using GlyphStyle = std::span<const GlyphStroke>;  // one way to write a digit

constexpr int kMaxGlyphPoints = 16;  // per stroke

// Returns the styles of a digit. REQUIRES: 0 <= digit <= 9.
std::span<const GlyphStyle> glyph_styles(int digit);

}  // namespace io
